"""Times: this machine's clock (`now`), and the sentence on how far it is ahead of the brokers'
(`note`); microseconds since 1970 as a datetime (`moment`) and back (`micros`).

Logs, records and leaves have the brokers' times. A look is ordered among them, and among the looks
of other machines, only if its time is the brokers' too.

No request asks a broker for its time. DescribeQuorum v1 (KIP-836, brokers since 3.3 in KRaft mode)
returns the active controller's present time for the controller itself: measured on 3.9.1 and 4.1.1
within a request's own time (inspectors/kafka/session.py asks). It needs DESCRIBE on the cluster.
Controllers and brokers are taken to have one clock.
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
    """Return microseconds since 1970 as a UTC datetime."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def micros(at: datetime) -> int:
    """Return a datetime as microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def note(ahead: timedelta, *, at_least: bool = False) -> str:
    """Return the sentence that says how far this machine's clock is ahead (negative: behind)."""
    seconds = round(abs(ahead).total_seconds())
    span = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    least, whose = ("at least ", "its own") if at_least else ("", "the brokers'")
    return (
        f"this machine's clock is {least}{span} {'ahead of' if ahead > timedelta() else 'behind'} "
        f"the brokers': the times of looks are {whose}"
    )


def ahead_of(theirs: datetime, asked: datetime, answered: datetime) -> timedelta:
    """Return how far this machine's clock is ahead of a time that was read between two others.

    It is 0 where it is not material, or smaller than the time that the answer took.
    """
    ahead = asked + (answered - asked) / 2 - theirs
    return ahead if abs(ahead) > max(MATERIAL, answered - asked) else timedelta()
