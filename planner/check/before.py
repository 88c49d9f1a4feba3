"""The snapshot that declarations describe: a group whose members run what the files say.

A rolling restart meets members that still run the earlier version, so a dynamic consumer counts as
two members, however many its files say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import (
    AssignorList,
    CoordinatorKind,
    DeclaredAssignors,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Software,
    Source,
)
from rebal.groups.vote import elect
from rebal.planner.check.compare import Pair
from rebal.planner.check.starts import BY_BROKERS, Start
from rebal.planner.risks import with_default_settings

# The id of the first start's first member.
FIRST: Final = "0.0"


def snapshot_of(starts: Sequence[Start]) -> GroupSnapshot:
    """Return the group whose members run these starts; Kafka's defaults are the brokers' settings.

    The assignor is None unless all vote for it: how many members a consumer has is not known.
    """
    found = list(snapshots_of(starts))
    return found[0] if len(found) == 1 else _with_assignor(found[0], None)


def snapshots_of(starts: Sequence[Start]) -> Iterator[GroupSnapshot]:
    """Yield that group with each assignor that it may have elected; once with none where the lists
    have nothing in common.
    """
    made = _snapshot([(start, None) for start in starts])
    lists = [member.assignors.list for member in made.members if member.assignors.list]
    votes = elect(lists, CoordinatorKind.UNKNOWN).votes if has_lists(made) else {}
    for assignor in votes or [None]:
        yield _with_assignor(made, assignor)


def has_lists(snapshot: GroupSnapshot) -> bool:
    """Return whether this is a classic group with members."""
    return snapshot.group.type is GroupType.CLASSIC and bool(snapshot.members)


def planned(pairs: Sequence[Pair]) -> GroupSnapshot:
    """Return the group before the change, with the later declarations as its next starts.

    Where the library stays, its members have the later version: that is what a plan brings.
    """
    made = _snapshot([(one.before, one.after) for one in pairs if one.before is not None])
    now = snapshot_of([one.before for one in pairs if one.before is not None])
    return _with_assignor(made, now.group.assignor)


def one_of_each(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return that group with one member for each consumer: rules name it by its file alone."""
    members = tuple(one for one in snapshot.members if one.member_id.endswith(FIRST[1:]))
    return replace(snapshot, members=members)


def _with_assignor(snapshot: GroupSnapshot, assignor: str | None) -> GroupSnapshot:
    return replace(snapshot, group=replace(snapshot.group, assignor=assignor))


def _snapshot(starts: Sequence[tuple[Start, Start | None]]) -> GroupSnapshot:
    members = [
        member
        for number, (now, later) in enumerate(starts)
        for member in _members(number, now, later)
    ]
    kinds = [GroupType(now.protocol) for now, _ in starts if now.protocol in BY_BROKERS]
    connect = any(now.family == "connect" for now, _ in starts)
    return with_default_settings(
        GroupSnapshot(
            group=Group(
                group_id=next((now.group_id for now, _ in starts if now.group_id), ""),
                state=GroupState.STABLE if members else GroupState.EMPTY,
                type=kinds[0] if kinds else GroupType.CLASSIC,
                protocol_type="connect" if connect else "consumer",
            ),
            # Declarations have no time.
            captured_at=datetime(2000, 1, 1, tzinfo=UTC),
            members=tuple(members),
        )
    )


def _members(number: int, now: Start, later: Start | None) -> Iterator[Member]:
    said = Evidence(source=Source.ASSUMED, detail=now.where)
    stays = later if later is not None and now.same_client(later) else now
    version = stays.library.version or now.library.version
    software = Software(family=now.family, version=version, evidence=(said,))
    online = now.protocol in BY_BROKERS
    for copy in range(1 if now.is_static else 2):
        yield Member(
            member_id=f"{number}.{copy}",
            client_id=now.where,
            instance_id=now.declared.instance_id,
            software=software if now.family is not None else None,
            assignors=AssignorList()
            if online
            else AssignorList(knowledge=Knowledge.EXACT, list=now.names, evidence=(said,)),
            declared=None if later is None else _next_start(later),
            protocol_type=now.protocol if online else None,
        )


def _next_start(later: Start) -> DeclaredAssignors:
    """Return the configuration of the next start, with the list that it has by default."""
    declared = later.declared
    fields = {name: getattr(declared, name) for name in DeclaredAssignors.__struct_fields__}
    reads = None if later.ignores_protocol else declared.group_protocol
    fields |= {"list": declared.list or later.names, "group_protocol": reads}
    return DeclaredAssignors(**fields)
