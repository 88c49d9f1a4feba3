"""Whoever carries out rebal's advice loses no member, in any of many generated histories.

`python -m tests.search` runs as many as it is asked for; `REBAL_SEARCH_SEED` moves the full run.
"""

import os

import pytest
import yaml

from tests.search.histories import History, draw
from tests.search.mutations import MUTATIONS
from tests.search.obey import rehearse
from tests.search.run import Report, kind_of, random_seeds, search, seeds, shrunk

SHARDS, SHORT = 2, 160
FULL_SHARDS, FULL = 20, 100_000
# A mutation, and a history that finds it.
FINDS = {
    1: 43, 2: 43, 3: 1, 4: 361, 5: 200_592, 6: 15, 7: 64, 8: 106, 9: 200_581, 10: 231, 11: 216,
    12: 90, 13: 384, 14: 30, 15: 15, 16: 200_043, 17: 2498, 18: 369, 19: 4, 20: 15, 21: 200_370,
    22: 2, 23: 15, 24: 0, 25: 0, 26: 6, 27: 0, 28: 116, 29: 52,
}  # fmt: skip


def none_found(report: Report) -> None:
    """No promise was broken; the message is each counter-example as a few lines."""
    assert not report.found, "\n\n".join(map(str, report.found))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_obeying_rebals_advice_loses_no_member(shard: int) -> None:
    report = search(seeds(SHORT, 0, (shard, SHARDS)), most=2)
    none_found(report)
    assert report.histories > SHORT / SHARDS * 0.95
    assert report.obeyed > report.histories
    assert report.ends["finished"] > report.histories * 0.7


@pytest.mark.full
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("shard", range(FULL_SHARDS))
def test_obeying_rebals_advice_loses_no_member_in_100_000_histories(shard: int) -> None:
    first = int(os.environ.get("REBAL_SEARCH_SEED", "100000"))
    report = search(seeds(FULL, first, (shard, FULL_SHARDS)), seconds=3_000)
    print(report)
    none_found(report)


@pytest.mark.parametrize("number", sorted(FINDS))
def test_the_search_finds_a_fixed_defect_that_is_put_back(number: int) -> None:
    history = draw(FINDS[number])
    before = rehearse(history)
    assert before is not None
    assert not before.violations
    with MUTATIONS[number]():
        assert kind_of(rehearse(history))


def test_a_printed_history_is_read_back() -> None:
    for seed in range(200):
        assert History.read(yaml.safe_load(str(draw(seed)))) == draw(seed)


def test_shards_of_random_seeds_are_disjoint_and_reproducible() -> None:
    halves = [set(random_seeds(100, 7, (part, 2))) for part in range(2)]
    assert halves[0] | halves[1] == set(random_seeds(100, 7))
    assert not halves[0] & halves[1]
    assert set(random_seeds(100, 8)) != set(random_seeds(100, 7))


def test_equal_histories_end_alike() -> None:
    ends = [rehearse(draw(7)) for _ in range(2)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].told == ends[1].told


def test_a_counter_example_shrinks_to_a_history_with_the_same_violation() -> None:
    with MUTATIONS[2]():
        (found,) = search(seeds(10, FINDS[2]), most=1, shrinks=False).found
        kind = kind_of(rehearse(found.history))
        small = shrunk(found.history, kind, most=60)
        assert kind_of(rehearse(small)) == kind
    sizes = [len(one.consumers) + len(one.events) for one in (small, found.history)]
    assert sizes[0] <= sizes[1]
