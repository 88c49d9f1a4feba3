"""Work shared out among processes comes back as if nobody had forked."""

import os

import pytest

from rebal.cli import forked
from rebal.cli.errors import UsageError


@pytest.mark.parametrize("processors", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_results_come_back_in_order(
    processors: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "_processors", lambda: processors)
    parent = os.getpid()
    found = forked.mapped(lambda number: (number * number, os.getpid()), range(count))
    assert [square for square, _ in found] == [number * number for number in range(count)]
    workers = {pid for _, pid in found}
    assert len(workers) <= min(processors, count)
    assert (parent in workers) is (min(processors, count) == 1)


def test_an_error_is_raised_here_wherever_it_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_processors", lambda: 2)

    def work(number: int) -> int:
        if number == 5:
            raise UsageError("five")
        return number

    with pytest.raises(UsageError, match="five"):
        forked.mapped(work, range(8))


def test_a_child_that_dies_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_processors", lambda: 3)
    parent = os.getpid()

    def work(number: int) -> int:
        if number == 4 and os.getpid() != parent:
            os._exit(9)
        return number

    assert forked.mapped(work, range(9)) == list(range(9))
