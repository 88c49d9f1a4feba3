"""A group's state: all that its timeline has noted, as a value and as one document.

`encode` writes the state so that the next scan goes on where this one stopped; `decode` makes the
same state of it, which takes the group's next rows as if there had been no break. What all groups
share (rows, decoded values, protocols, topics' names) is no part of it. Documents are msgpack of
the types below and nothing else: they name no class and no function. One of another `SCHEMA`, or
one that is damaged, is refused, and its group is told anew from its records.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline.consumer import ConsumerGroup
from rebal.inspectors.fleet.timeline.events import LeaderSynced, Record, Replaced, Tombstone
from rebal.inspectors.fleet.timeline.facts import LoggedGeneration, RequestFacts
from rebal.inspectors.fleet.timeline.incidents import Incidents
from rebal.inspectors.fleet.timeline.lists import Lists
from rebal.inspectors.fleet.timeline.members import Members, MemberSpan
from rebal.inspectors.fleet.timeline.metrics import Metrics
from rebal.inspectors.fleet.timeline.protocol import Protocols
from rebal.inspectors.fleet.timeline.rebalances import Generation, Owners

SCHEMA: Final = 1
"""Raise it with every change of a type that a state holds; a release alone does not change it."""


class GroupState(Struct, kw_only=True, array_like=True):
    """All there is of one group; times are microseconds since 1970, effective ones of records.

    `generation` is the newest completed one, and `members` who is in it; `slipped` are those who
    went when it was written again. `assigned` is how many partitions it gives, `withheld` those
    that nobody owns until the next one, by their last owner; bits of `blocks` (`PartitionBits`).
    `cut` is whether records before the next one may be missing. `window` holds the events of the
    last ten seconds, `held` the generations that only the log shows so far, `applied` the
    incarnation of the newest event that was applied, `looked_at` the one whose logged generations
    count. `newest` are offsets by partition; `latest` is the latest timestamp that a record told.
    """

    schema: Literal[1] = SCHEMA
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
    tombstone: Tombstone | None = None
    generation: Generation | None = None
    members: Members = {}
    slipped: list[MemberSpan] = []
    protocol: str | None = None
    assigned: int = 0
    blocks: list[tuple[str, int]] = []
    withheld: Owners = {}
    cut: bool = False
    consumer: ConsumerGroup | None = None
    has_member_records: bool = False
    facts: RequestFacts
    window: list[Record | LeaderSynced | Replaced] = []
    held: dict[int, LoggedGeneration] = {}
    applied: int = 1
    looked_at: int = 1
    lists: Lists
    incidents: Incidents
    metrics: Metrics

    @property
    def logged(self) -> dict[int, LoggedGeneration]:
        """What the log shows of generations, by number."""
        return self.facts.of(self.looked_at).generations

    @property
    def place(self) -> tuple[int | None, int | None] | None:
        """The partition and the offset of its newest record; None: it has records in several."""
        if len(self.newest) > 1:
            return None
        return next(iter(self.newest.items()), (None, None))


_ENCODER: Final = Encoder()
_DECODER: Final = Decoder(GroupState)


def new_state(group_id: str, recorded: bool) -> GroupState:
    """The state of a group of which nothing is told; `recorded` is whether records tell of it."""
    return GroupState(
        group_id=group_id,
        facts=RequestFacts(recorded=recorded),
        lists=Lists(),
        incidents=Incidents(),
        metrics=Metrics(),
    )


def encode(state: GroupState) -> bytes:
    """Return the state's document; the state can go on."""
    return _ENCODER.encode(state)


def decode(data: bytes, group_id: str, protocols: Protocols) -> GroupState:
    """Return this group's state of this document.

    Raises:
        DocumentError: the document is damaged, has another schema, or is another group's.
    """
    try:
        state = _DECODER.decode(data)
    except (MsgspecError, ValueError) as error:
        raise DocumentError(f"a group's state in the lake cannot be read ({error}).") from None
    if state.group_id != group_id:
        raise DocumentError(f"the state of group {group_id!r} in the lake is another group's.")
    for span in (*state.members.values(), *state.slipped):
        if span.profile is not None:
            span.profile = protocols.profile(span.profile.kind)
    for event in state.window:
        if isinstance(event, LeaderSynced):
            event.generation = _the_same(event.generation, state.facts)
    state.held = {number: _the_same(one, state.facts) for number, one in state.held.items()}
    return state


def _the_same(one: LoggedGeneration, facts: RequestFacts) -> LoggedGeneration:
    """The generation that later lines add to, where it is still known."""
    known = (each.generations.get(one.number) for each in facts.incarnations.values())
    return next((found for found in known if found == one), one)
