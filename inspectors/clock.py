"""Time: this machine's clock, its difference from the brokers' clock, microseconds since 1970.

Logs, records and leaves carry the brokers' times, but a description of a group is dated by this
machine's clock. To order descriptions among those events, and among descriptions by other machines,
the difference of the clocks (`ahead_of`) must be known.

No Kafka request asks a broker for its time. DescribeQuorum v1 (KIP-836, brokers since 3.3 in KRaft
mode) comes close: for the active controller itself it returns the controller's present time.
Measured on 3.9.1 and 4.1.1, it differs by less than the duration of the request. `kafka/session.py`
sends it. It needs DESCRIBE on the cluster. Controllers and brokers are assumed to have equal
clocks.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

# A smaller difference changes no order: members join, leave and commit in seconds.
MATERIAL: Final = timedelta(seconds=2)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)


def moment(micros: int | None) -> datetime | None:
    """Return microseconds since 1970 as a UTC datetime; None for None."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def micros(at: datetime) -> int:
    """Return a datetime as microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def note(ahead: timedelta, *, at_least: bool = False) -> str:
    """Return the sentence that tells the operator how far this machine's clock differs.

    `ahead` is how far it is ahead of the brokers' clock (negative: behind). If `at_least` is True,
    the difference is only a lower bound, and the sentence says that the times of snapshots were not
    corrected by it.
    """
    seconds = round(abs(ahead).total_seconds())
    span = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    least, whose = ("at least ", "its own") if at_least else ("", "the brokers'")
    return (
        f"this machine's clock is {least}{span} {'ahead of' if ahead > timedelta() else 'behind'} "
        f"the brokers': the times of looks are {whose}"
    )


def ahead_of(theirs: datetime, asked: datetime, answered: datetime) -> timedelta:
    """Return how far this machine's clock is ahead of the clock that showed `theirs`.

    This machine's clock showed `asked` before `theirs` was read, and `answered` after it. A
    negative result means behind. The result is 0 if the difference is at most 2 seconds
    (`MATERIAL`), or at most the time from `asked` to `answered`.
    """
    ahead = asked + (answered - asked) / 2 - theirs
    return ahead if abs(ahead) > max(MATERIAL, answered - asked) else timedelta()
