"""How long the rehearsal engine takes for whole roll-outs, and what costs add to a plan."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import linear_regression, median
from time import process_time

from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.engine.member import Process, RunningProcess
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scripts import Scene, Script, restarts

OLD, BOTH, NEW = ("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)
# Goals of a plan whose costs may add so many seconds for 20 members.
GOALS = (("range", "cooperative"), ("range", "consumer"), ("uniform", "cooperative-sticky"))
MOST_ADDED = 0.2
# Members of which each restart is timed; the growth is measured from the first to the last.
SIZES = (20, 50, 100, 200, 500, 1000)
_RESTARTS = 20
# Members, partitions, bounces, and the most seconds of processor time.
CASES = ((20, 200, 2, 0.2), (200, 2000, 2, 10.0), (1000, 10_000, 1, 120.0))


@dataclass(frozen=True)
class Timed:
    """One roll-out; times in seconds of processor time."""

    members: int
    partitions: int
    bounces: int
    took: float
    most: float

    @property
    def holds(self) -> bool:
        return self.took <= self.most

    def text(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"{self.members} members, {self.partitions} partitions, {self.bounces} bounces: "
            f"{self.took:.2f} s, at most {self.most:g} s: {verdict}"
        )


@dataclass(frozen=True)
class Growth:
    """How the time of one restart grows with the members, who have ten partitions each.

    `points` are numbers of members, and the seconds of processor time that one restart takes.
    """

    points: tuple[tuple[int, float], ...]

    @property
    def exponent(self) -> float:
        """The slope of the line through all points, both axes logarithmic."""
        members, seconds = zip(*self.points, strict=True)
        return linear_regression(list(map(math.log, members)), list(map(math.log, seconds))).slope

    @property
    def holds(self) -> bool:
        """Each restart makes every member join again: linear, with some room."""
        return self.exponent <= 1.3

    def text(self) -> str:
        verdict = "nearly linear" if self.holds else "NOT nearly linear"
        shown = ", ".join(f"{members:,}: {1000 * took:.1f} ms" for members, took in self.points)
        return f"a restart by members: {shown}; exponent {self.exponent:.2f}: {verdict}"


@dataclass(frozen=True)
class Added:
    """Processor time that costs add to a plan of 20 members with 200 partitions, in seconds."""

    goal: str
    took: float

    @property
    def holds(self) -> bool:
        return self.took <= MOST_ADDED

    def text(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"costs of 20 members to {self.goal}: {self.took:.2f} s, at most {MOST_ADDED:g} s: "
            f"{verdict}"
        )


def rows() -> Iterator[Timed | Growth | Added]:
    for elected, goal in GOALS:
        yield Added(goal, _added(elected, goal))
    for members, partitions, bounces, most in CASES:
        took = _roll(members, partitions, bounces, members)
        yield Timed(members, partitions, bounces, took, most)
    yield Growth(tuple((count, _one_restart(count)) for count in SIZES))


def _one_restart(members: int) -> float:
    """Return the seconds that a restart takes: the median of three times twenty."""
    return median(_roll(members, 10 * members, 1, _RESTARTS) for _ in range(3)) / _RESTARTS


def _added(elected: str, goal: str) -> float:
    from tests.planner.builder import group_of

    kip848 = elected == "uniform"
    own = {"protocol_type": "consumer"} if kip848 else {"list": [elected]}
    members = [{"id": f"m{number:02d}", "version": "4.1.1", **own} for number in range(20)]
    kind = {"type": "consumer"} if kip848 else {}
    made = group_of({"members": members, "elected": elected, "topics": {"orders": 200}, **kind})
    shares = [Partitions(range(10 * place, 10 * place + 10)) for place in range(20)]
    owners = (
        replace(member, assignment={"orders": share})
        for member, share in zip(made.members, shares, strict=True)
    )
    snapshot = replace(made, members=tuple(owners))
    make_plan(snapshot, goal, pricing=None)
    began = process_time()
    make_plan(snapshot, goal, pricing=None)
    bare = process_time() - began
    make_plan(snapshot, goal)
    began = process_time()
    make_plan(snapshot, goal)
    return process_time() - began - bare


def _roll(members: int, partitions: int, bounces: int, restarted: int) -> float:
    """Return the seconds that a rolling restart of so many members takes."""
    each = partitions // members
    names = [f"m{number:04d}" for number in range(members)]
    running = tuple(
        RunningProcess(
            process=Process(name=name, assignors=OLD, topics=("orders",)),
            member_id=f"{name}-0",
            owned=tuple(("orders", n) for n in range(place * each, (place + 1) * each)),
            generation=1,
        )
        for place, name in enumerate(names)
    )
    scene = Scene(topics={"orders": partitions}, running=running, assignor="range", generation=1)
    events = [
        event
        for number, list_ in enumerate((BOTH, NEW)[:bounces], 1)
        for event in restarts(
            f"step {number}", list_, [(name,) for name in names[:restarted]], batch=1
        )
    ]
    began = process_time()
    rehearse(scene, Script(events=tuple(events)), keep=False)
    return process_time() - began
