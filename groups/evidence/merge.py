"""Binding what was seen to a group's members: `merge(snapshot, observations)`; pure.

Identity is the member id: a fact about it stays exact while that id is in the group. A client id
binds only a configuration file, and only where one member has it. A member's list is exact (it was
seen joining), declared (its file: what the NEXT start uses; never above exact), bounded (elected
assignor, probe, owned partitions) or unknown. Evidence that cannot all be true is kept on both
sides and named in `contradictions`; nothing is resolved silently. A file that differs from an exact
list is no contradiction: it was changed and the member was not restarted (rule RB903).

Merging again, or in another order, changes nothing. Times of logs without a zone are placed first
(clocks.py), and logs of other brokers, clusters or times are left out
(origin.py). `Rebalanced` binds to no member: whether a rebalance came after the
coordinator loaded the group is told by the offsets topic, not by comparing two clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from msgspec.structs import replace

from rebal.groups.clients import default_list, identify, proven_family
from rebal.groups.evidence.bounds import contradictions, with_bounds
from rebal.groups.evidence.clocks import placed, zone_notes
from rebal.groups.evidence.declared import bind
from rebal.groups.evidence.departed import departed
from rebal.groups.evidence.exact import evidence_key, when, with_joins, with_ran
from rebal.groups.evidence.observations import Declared, Introduced, Joined, Observation, Ran
from rebal.groups.evidence.origin import own
from rebal.groups.evidence.rejections import rejections
from rebal.groups.model import (
    AssignorList,
    DeclaredAssignors,
    Evidence,
    GroupSnapshot,
    GroupType,
    Knowledge,
    Member,
    Software,
    Source,
    Unmatched,
)

_NAMED: Final = 3
_WORKER: Final = Software(
    family="connect",
    evidence=(
        Evidence(source=Source.DESCRIBE, detail="protocol type connect is Connect workers' own"),
    ),
)
_T = TypeVar("_T")


def merge(snapshot: GroupSnapshot, observations: Iterable[Observation]) -> GroupSnapshot:
    """`snapshot` with the observations of its group bound to its members.

    With no observation at all it still draws what the snapshot itself proves: bounds from the
    elected assignor, the probe and owned partitions, and guesses of the client software.
    """
    group_id = snapshot.group.group_id
    seen, offsets = placed(
        snapshot, (one for one in observations if one.group_id in (group_id, None))
    )
    seen, unused = own(snapshot, seen)
    notes = (*zone_notes(seen, offsets), *unused)
    joins: dict[str, list[Joined]] = {}
    for one in seen:
        if isinstance(one, Joined):
            joins.setdefault(one.member_id, []).append(one)
    found = [with_joins(member, joins.pop(member.member_id, ())) for member in snapshot.members]
    ran: dict[str, list[Ran]] = {}
    for one in seen:
        if isinstance(one, Ran):
            ran.setdefault(one.member_id, []).append(one)
    told = {one.member_id: one.software for one in seen if isinstance(one, Introduced)}
    found = [(_introduced(member, told.get(member.member_id)), items) for member, items in found]
    shown = [with_ran(member, ran.get(member.member_id, ())) for member, _ in found]
    found += [(member, items) for member, items in shown]
    members = [_with_guess(member, snapshot) for member, _ in shown]
    declared = _by_name((one for one in seen if isinstance(one, Declared)), members)
    files = bind(members, declared, group_id)
    members = [_with_declared(m, files.by_member.get(m.member_id)) for m in members]
    absent = [join for member_joins in joins.values() for join in member_joins]
    bounded = with_bounds(replace(snapshot, members=tuple(members)))
    expected = snapshot.expected_members
    return replace(
        bounded,
        refusals=rejections(snapshot.refusals, seen, bounded.members),
        departed=departed(snapshot, seen),
        contradictions=_joined(
            snapshot.contradictions,
            [item for _, items in found for item in items] + list(contradictions(bounded)),
        ),
        unmatched=_joined(snapshot.unmatched, [*files.unmatched, *_absent(absent)]),
        expected_members=files.replicas if expected is None else expected,
        notes=(*snapshot.notes, *(note for note in notes if note not in snapshot.notes)),
    )


def _by_name(files: Iterable[Declared], members: Iterable[Member]) -> Iterator[Declared]:
    """`files` with the name of each class that the members' own logs gave a name."""
    known = [member.assignors for member in members if member.assignors.classes]
    names = {each: name for one in known for each, name in zip(one.classes, one.list, strict=True)}
    for one in files:
        yield replace(one, list=tuple(names.get(each, each) for each in one.list))


def _introduced(member: Member, software: Software | None) -> Member:
    """What a join said of the client stands: it is as good, and names a version as well."""
    if software is None or proven_family(member.software) is not None:
        return member
    return replace(member, software=software)


def _with_guess(member: Member, snapshot: GroupSnapshot) -> Member:
    """Where the client did not say who it is, what its bytes and its client id betray."""
    if member.software is None and snapshot.group.protocol_type == "connect":
        return replace(member, software=_WORKER)
    if member.software is not None or snapshot.group.protocol_type not in ("consumer", None):
        return member
    if snapshot.group.type not in (GroupType.CLASSIC, GroupType.UNKNOWN):
        return member
    group = snapshot.group
    guess = identify(
        member.client_id, member.member_id, member.subscription, group.assignor, group.group_id
    )
    return member if guess is None else replace(member, software=guess)


def _with_declared(member: Member, declared: DeclaredAssignors | None) -> Member:
    if declared is None:
        return member
    member = replace(member, declared=declared)
    known = member.assignors
    if known.knowledge is Knowledge.EXACT or declared.group_protocol == "consumer":
        return member
    names = declared.list
    if not names and member.software is not None:
        key = proven_family(member.software)
        names = default_list(key, member.software.version) or ()
    if not names:
        return member
    evidence = tuple(sorted({*known.evidence, declared.evidence}, key=evidence_key))
    made = AssignorList(
        knowledge=Knowledge.DECLARED,
        list=names,
        at_least=known.at_least,
        lacks=known.lacks,
        evidence=evidence,
    )
    return replace(member, assignors=made)


def _absent(joins: list[Joined]) -> list[Unmatched]:
    """One line for all joins of members that are not in the group: a log holds many."""
    if not joins:
        return []
    newest = max(joins, key=lambda join: (when(join.at), repr(join)))
    ids = {join.member_id for join in joins}
    labels = sorted({join.instance_id or join.client_id or join.member_id for join in joins})
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    one = len(ids) == 1
    return [
        Unmatched(
            what=f"joins of {len(ids)} member id{'' if one else 's'} "
            f"({', '.join(labels[:_NAMED])}{more})",
            why="no longer in the group: a restarted member has a new member id",
            evidence=newest.evidence,
        )
    ]


def _joined(known: tuple[_T, ...], found: Iterable[_T]) -> tuple[_T, ...]:
    """What was known, then what is new, each once."""
    new = sorted((item for item in dict.fromkeys(found) if item not in known), key=repr)
    return (*known, *new)
