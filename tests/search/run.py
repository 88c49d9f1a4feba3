"""The search: histories of many seeds, each carried out as rebal advises; failures are shrunk."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from tests.search.histories import History, draw, smaller
from tests.search.obey import End, rehearse
from tests.search.obey import kind_of as violation_kind

_MOST_SHRINKS = 400


@dataclass(frozen=True)
class Found:
    """A counter-example: the history as drawn, the smallest one that still fails, and why."""

    history: History
    smallest: History
    why: str
    told: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.smallest), *(f"  | {line}" for line in self.told), self.why])


@dataclass
class Report:
    """What a search did: how many histories ended how, and its counter-examples.

    `answers` counts the histories in which only the operator could answer a question, by question.
    """

    histories: int = 0
    looks: int = 0
    obeyed: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)

    def __str__(self) -> str:
        speed = self.histories / self.seconds if self.seconds else 0.0
        return (
            f"{self.histories:,} histories, {self.looks:,} looks, {self.obeyed:,} obeyed "
            f"actions in {self.seconds:.0f} s ({speed:.0f} a second); {len(self.found)} "
            f"counter-examples; ends: {_listed(self.ends)}; "
            f"answered by the operator: {_listed(self.answers)}"
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.most_common()) or "nothing"


def seeds(count: int, first: int, shard: tuple[int, int] = (0, 1)) -> range:
    """Return the seeds of one shard (its number, how many there are) of a search."""
    number, of = shard
    return range(first + number, first + count, of)


def random_seeds(count: int, drawn: int, shard: tuple[int, int] = (0, 1)) -> list[int]:
    """Return the seeds of one shard of a search over seeds that are drawn from one number."""
    number, of = shard
    return Random(drawn).sample(range(10**12), count)[number::of]


def search(
    drawn: Iterable[int],
    *,
    seconds: float = float("inf"),
    most: int = 5,
    shrinks: bool = True,
    progress: Callable[[Report], object] = str,
) -> Report:
    """Return what became of the histories of these seeds.

    It ends early after so many seconds, or with so many counter-examples. `progress` gets the
    figures after each counter-example and every 500 histories.
    """
    report = Report()
    began = time.monotonic()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for seed in drawn:
            if time.monotonic() - began > seconds or len(report.found) >= most:
                break
            history = draw(seed)
            outcome = rehearse(history)
            if outcome is None:
                continue
            _count(report, outcome)
            if outcome.violations:
                report.found.append(_found(history, outcome, shrinks=shrinks))
            report.seconds = time.monotonic() - began
            if outcome.violations or report.histories % 500 == 0:
                progress(report)
            if report.histories % 200 == 0:
                gc.collect()
    finally:
        if enabled:
            gc.enable()
    return report


def _count(report: Report, outcome: End) -> None:
    report.histories += 1
    report.looks += outcome.looks
    report.obeyed += outcome.obeyed
    report.ends[outcome.ended.partition(":")[0]] += 1
    report.answers.update(set(outcome.answers))


def _found(history: History, outcome: End, *, shrinks: bool) -> Found:
    small = shrunk(history, kind_of(outcome)) if shrinks else history
    last = rehearse(small) if small is not history else outcome
    assert last is not None
    return Found(
        history, small, last.violations[0][:300], tuple(line[:200] for line in last.told[-12:])
    )


def kind_of(outcome: End | None) -> str:
    broken = outcome.violations if outcome is not None else []
    return violation_kind(broken[0]) if broken else ""


def shrunk(history: History, kind: str, most: int = _MOST_SHRINKS) -> History:
    """Return the smallest history, within so many tries, that breaks the same kind of promise."""
    tries = iter(range(most))
    while True:
        for one, _ in zip(smaller(history), tries, strict=False):
            if kind_of(rehearse(one)) == kind:
                history = one
                break
        else:
            return history
