"""What `--to` means for a group: the goal, the assignor to end on, and how strictly."""

from __future__ import annotations

from rebal.groups.clients import assignors
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, GroupType, Knowledge, Record, Tri
from rebal.planner.context import CONSUMER, COOPERATIVE, COOPERATIVE_STICKY, EAGER
from rebal.planner.families import cooperative


class NotPlannedError(RebalError):
    """A goal that this version plans no way to; says what it does plan."""


class Goal(Record, frozen=True, kw_only=True):
    """`kind` is cooperative, eager or consumer; `target` the assignor to end on.

    `only_target`: every other assignor is to go, of whatever kind. `back`: a KIP-848 group is to
    return to the classic protocol.
    """

    kind: str
    target: str
    only_target: bool = False
    back: bool = False


def goal_of(snapshot: GroupSnapshot, target: str) -> Goal:
    """The goal that `--to target` names.

    Raises:
        NotPlannedError: no goal is called that, or no way to it is planned.
    """
    kip848 = snapshot.group.type is GroupType.CONSUMER
    if target in (COOPERATIVE, COOPERATIVE_STICKY):
        back = kip848 and target == COOPERATIVE_STICKY
        return Goal(kind=COOPERATIVE, target=COOPERATIVE_STICKY, only_target=back, back=back)
    if target == CONSUMER:
        return Goal(kind=CONSUMER, target=COOPERATIVE_STICKY)
    if target == EAGER:
        return Goal(kind=EAGER, target=_old_one(snapshot), back=kip848)
    if cooperative(target) is Tri.NO and target in assignors() and _of_consumers(target):
        elected = snapshot.group.assignor
        aside = elected not in (None, target) and cooperative(str(elected)) is not Tri.YES
        mixed = elected == target and _others(snapshot, target)
        return Goal(kind=EAGER, target=target, only_target=aside or mixed or kip848, back=kip848)
    raise NotPlannedError(
        f"--to {target}: expected cooperative, eager, consumer, or one of range, roundrobin, "
        "sticky, cooperative-sticky."
    )


def _of_consumers(name: str) -> bool:
    return name in ("range", "roundrobin", "sticky")


def _others(snapshot: GroupSnapshot, target: str) -> bool:
    """Does an exact list hold another eager assignor beside the target: a move is under way."""
    return any(
        name != target and cooperative(name) is Tri.NO
        for member in snapshot.members
        for name in member.assignors.list
    )


def _old_one(snapshot: GroupSnapshot) -> str:
    """The eager assignor to go back to: the elected one, one that the lists name, else range."""
    elected = snapshot.group.assignor
    lists = [m.assignors.list for m in snapshot.members if m.assignors.knowledge is Knowledge.EXACT]
    for name in (elected, *(name for names in lists for name in names)):
        if name and cooperative(name) is Tri.NO:
            return name
    return "range"
