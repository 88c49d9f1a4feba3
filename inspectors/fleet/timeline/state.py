"""A group's state: all that its timeline has noted, as a value and as one document.

`encode` writes the state so that the next scan goes on where this one stopped; `decode` makes the
same state of it, which takes the group's next rows as if there had been no break. What all groups
share (rows, decoded values, topics' names) is no part of it. Documents are msgpack of the types
below and nothing else: they name no class and no function. One of another `SCHEMA` counts as none,
and its group's rows are made anew from its records; one that is damaged ends the scan.
"""

from typing import Final, Literal, NamedTuple

from msgspec import MsgspecError, Struct, field
from msgspec.msgpack import Decoder, Encoder

from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline.consumer import ConsumerGroupRecords
from rebal.inspectors.fleet.timeline.facts import Lists, RequestFacts
from rebal.inspectors.fleet.timeline.incidents import Incidents
from rebal.inspectors.fleet.timeline.rebalances import Generation, MemberSpan, Owners

SCHEMA: Final = 7
"""Raise it with every change of a type that a state holds; a release alone does not change it."""


class Logged(NamedTuple):
    """A log's sign of a generation: its leader sent the assignments.

    Where `before` is set, that a static member came back within it as `now` (KIP-345).
    """

    at: int
    generation: int
    before: str | None = None
    now: str = ""
    leader: str | None = None


class Tombstone(Struct, array_like=True):
    """The end of a group of this type, or half of its conversion; `own_at` is what it told."""

    at: int
    own_at: int
    type: GroupType


class Metrics(Struct, array_like=True):
    """KIP-429's rebalance metrics of one group, from the rebalances that were seen.

    They count rebalances of the group, not of one client; a generation that leaves the group empty
    is nobody's rebalance and is not counted. Latencies are milliseconds, times microseconds.
    """

    total: int = 0
    failures: int = 0
    rejected: int = 0
    timed: int = 0
    latency_total: float = 0.0
    latency_max: float = 0.0
    last_at: int | None = None

    def completed(self, at: int, latency_ms: float | None) -> None:
        """Note a rebalance that was completed at `at`."""
        self.total += 1
        self.last_at = at if self.last_at is None else max(at, self.last_at)
        if latency_ms is not None:
            self.timed += 1
            self.latency_total += latency_ms
            self.latency_max = max(self.latency_max, latency_ms)

    def columns(self, log: bool) -> dict[str, int | float | None]:
        """Return the columns from `rebalance_total` to `refused_total`, by name.

        `log` is whether the request log was read: only it shows rejections.
        """
        timed = self.timed > 0
        return {
            "rebalance_total": self.total,
            "rebalance_latency_avg_ms": self.latency_total / self.timed if timed else None,
            "rebalance_latency_max_ms": self.latency_max if timed else None,
            "rebalance_latency_total_ms": self.latency_total if timed else None,
            "failed_rebalance_total": self.failures,
            "last_rebalance_at": self.last_at,
            "refused_total": self.rejected if log else None,
        }


class TimelineState(Struct, kw_only=True, array_like=True):
    """All there is of one group; times are microseconds since 1970, effective ones of records.

    `generation` is the newest completed one, and `members` who is in it; `slipped` are those who
    went when it was written again. `assigned` is how many partitions it gives, `withheld` those
    that nobody owns until the next one, by their last owner.
    `cut` is whether records before the next one may be missing. `newest` are offsets by partition;
    `latest` is the latest timestamp that a record told, `recorded` whether records tell of the
    group at all; where none do, `logged` is what happens at its own time.
    """

    schema: Literal[7] = SCHEMA
    group_id: str
    type: GroupType = GroupType.UNKNOWN
    protocol_type: str | None = None
    partition: int | None = None
    sources: set[str] = set()
    first_at: int | None = None
    last_at: int = 0
    latest: int | None = None
    told_until: int = 0
    newest: dict[int, int] = {}
    incarnation: int = 1
    ended: bool = False
    deleted_at: int | None = None
    dying: Tombstone | None = None
    generation: Generation | None = None
    members: dict[str, MemberSpan] = {}
    slipped: list[MemberSpan] = []
    protocol: str | None = None
    assigned: int = 0
    withheld: Owners = {}
    cut: bool = False
    consumer: ConsumerGroupRecords | None = None
    has_member_records: bool = False
    recorded: bool = False
    logged: list[Logged] = []
    facts: RequestFacts = field(default_factory=RequestFacts)
    lists: Lists = field(default_factory=Lists)
    incidents: Incidents = field(default_factory=Incidents)
    metrics: Metrics = field(default_factory=Metrics)


_ANEW: Final = "scan again with --full, which reads all that the sources still hold."
_DECODER: Final = Decoder(TimelineState)
encode: Final = Encoder().encode
"""Returns the document of a state, which can go on."""


def decode(data: bytes, group_id: str) -> TimelineState:
    """Return this group's state of this document.

    Raises:
        DocumentError: the document is damaged, has another schema, or is another group's.
    """
    try:
        state = _DECODER.decode(data)
    except (MsgspecError, ValueError) as error:
        raise DocumentError(
            f"the lake's state of group {group_id} is damaged ({error}): {_ANEW}"
        ) from None
    if state.group_id != group_id:
        raise DocumentError(f"the lake's state of group {group_id} is another group's: {_ANEW}")
    return state
