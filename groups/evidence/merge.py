"""Bind observations to the members of a group: `merge(snapshot, observations)`. Pure.

Identity is the member id: a fact about it stays exact while that id is in the group. A client id
binds only a configuration file, and only if a single member or Streams program uses it. A member's
assignor list is exact (a log shows its join), declared (its configuration file: the list of its
next start, never above exact), bounded (elected assignor, probe, owned partitions) or unknown.

Evidence that cannot all be true is kept and named in `contradictions`; of two exact lists, the
member has the one that `exact.with_joins` prefers. A file that differs from an exact list is no
contradiction: the file was changed and the member was not restarted (rule RB903).

Merging again, or in another order, gives the same result.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rebal.groups.clients import default_list, is_named, proven_family
from rebal.groups.evidence.absent import departed, rejections
from rebal.groups.evidence.bounds import contradictions, with_bounds
from rebal.groups.evidence.exact import evidence_key, when, with_joins, with_ran
from rebal.groups.evidence.fingerprint import identify
from rebal.groups.evidence.logs import in_order, own, with_loads, with_utc_times, zone_notes
from rebal.groups.evidence.observations import (
    Converted,
    Declared,
    Introduced,
    Joined,
    Observation,
    Ran,
    Seen,
    by_field,
)
from rebal.groups.model import (
    AssignorList,
    DeclaredAssignors,
    Evidence,
    GroupSnapshot,
    Knowledge,
    Member,
    Software,
    Source,
    Unmatched,
)
from rebal.groups.streams import THREAD

_NAMED: Final = 3
_T = TypeVar("_T")


def merge(snapshot: GroupSnapshot, observations: Iterable[Observation]) -> GroupSnapshot:
    """Return `snapshot` with the observations of its group bound to its members.

    Without observations it still adds what the snapshot itself proves: bounds from the elected
    assignor, the probe and owned partitions, and guesses of the client software.
    """
    group_id = snapshot.group.group_id
    seen, offsets = with_utc_times(
        snapshot, in_order([one for one in observations if one.group_id in (group_id, None)])
    )
    seen, unused = own(snapshot, seen)
    used = {
        o.origin: offsets[o.origin] for o in seen if isinstance(o, Seen) and o.origin in offsets
    }
    conversions = (
        f"the broker's log ({one.evidence.detail}): {one.what}"
        + (f" at {one.at:%Y-%m-%d %H:%M:%SZ}" if one.at is not None else "")
        for one in seen
        if isinstance(one, Converted)
    )
    notes = (*zone_notes(seen, used), *unused, *conversions)
    snapshot = with_loads(snapshot, seen)
    joins = by_field(seen, Joined, "member_id")
    found = [with_joins(member, joins.pop(member.member_id, ())) for member in snapshot.members]
    ran = by_field(seen, Ran, "member_id")
    told = {one.member_id: one.software for one in seen if isinstance(one, Introduced)}
    shown = [with_ran(member, ran.get(member.member_id, ())) for member, _ in found]
    members = [_with_software(member, snapshot, told.get(member.member_id)) for member, _ in shown]
    known = [member.assignors for member in members if member.assignors.classes]
    # Members' own logs name the assignors of classes.
    names = {each: name for one in known for each, name in zip(one.classes, one.list, strict=True)}
    declared = [
        replace(one, list=tuple(names.get(each, each) for each in one.list))
        for one in seen
        if isinstance(one, Declared)
    ]
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
            [*(item for _, items in (*found, *shown) for item in items), *contradictions(bounded)],
        ),
        unmatched=_joined(snapshot.unmatched, [*files.unmatched, *_absent(absent)]),
        expected_members=files.replicas if expected is None else expected,
        undated_logs=snapshot.undated_logs or None in used.values(),
        notes=(*snapshot.notes, *(note for note in notes if note not in snapshot.notes)),
    )


def _with_software(member: Member, snapshot: GroupSnapshot, told: Software | None) -> Member:
    """Return `member` with its client software, by the best evidence.

    `told` is the software that a KIP-848 member sends in its heartbeats. It is used unless a join
    or a log already states the software (`is_named`). If no software is known, it is guessed from
    the protocol type, the subscription's bytes and the client id.
    """
    group = snapshot.group
    if told is not None and not is_named(member.software):
        return replace(member, software=told)
    if member.software is not None:
        return member
    if group.protocol_type == "connect":
        detail = "protocol type connect is Connect workers' own"
        said = Evidence(source=Source.DESCRIBE, detail=detail)
        return replace(member, software=Software(family="connect", evidence=(said,)))
    if group.protocol_type not in ("consumer", None) or not snapshot.has_assignor_lists:
        return member
    guess = identify(
        member.client_id, member.member_id, member.subscription, group.assignor, group.group_id
    )
    return replace(member, software=guess)


def _with_declared(member: Member, declared: DeclaredAssignors | None) -> Member:
    if declared is None:
        return member
    member, known = replace(member, declared=declared), member.assignors
    if known.knowledge is Knowledge.EXACT or declared.group_protocol == "consumer":
        return member
    names = declared.list
    if not names and member.software is not None:
        names = default_list(proven_family(member.software), member.software.version) or ()
    if not names:
        return member
    made = AssignorList(
        knowledge=Knowledge.DECLARED,
        list=names,
        at_least=known.at_least,
        lacks=known.lacks,
        evidence=tuple(sorted({*known.evidence, declared.evidence}, key=evidence_key)),
    )
    return replace(member, assignors=made)


def _absent(joins: list[Joined]) -> list[Unmatched]:
    # One line for all of them: logs hold many.
    if not joins:
        return []
    newest = max(joins, key=lambda join: (when(join.at), repr(join)))
    count = len({join.member_id for join in joins})
    named = _some(join.instance_id or join.client_id or join.member_id for join in joins)
    what = f"joins of {count} member id{'' if count == 1 else 's'} ({named})"
    why = "no longer in the group: a restarted member has a new member id"
    return [Unmatched(what=what, why=why, evidence=newest.evidence)]


def _some(names: Iterable[str]) -> str:
    ordered = sorted(set(names))
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return f"{', '.join(ordered[:_NAMED])}{more}"


def _joined(known: tuple[_T, ...], found: Iterable[_T]) -> tuple[_T, ...]:
    new = sorted((item for item in dict.fromkeys(found) if item not in known), key=repr)
    return (*known, *new)


class Bound(NamedTuple):
    """Result of `bind`: the configuration by member id, the files that fit no member, the replicas.

    `replicas` is the number of processes that the group's files start together; None without a
    file, or if one file does not give its number.
    """

    by_member: dict[str, DeclaredAssignors]
    unmatched: tuple[Unmatched, ...]
    replicas: int | None


def bind(members: Sequence[Member], declared: Iterable[Declared], group_id: str) -> Bound:
    """Bind configuration files to members.

    A file belongs to the member with its instance id, else to the one member with its client id
    (for Streams: to all threads of the program). A file with neither belongs to every member that
    no other file claims and whose client it fits, but only if all files of the group agree and
    start enough processes for all members. A file that does not name its group is bound by instance
    id or client id only. If files that differ claim one member, none is bound to it.
    """
    of_group = {one for one in declared if one.group_id in (group_id, None)}
    files = sorted(of_group, key=lambda one: (one.where, repr(one)))
    own = [one for one in files if one.group_id is not None]
    replicas = _replicas(own)
    alike = len({_says(one) for one in own}) == 1
    enough = replicas is None or replicas >= len(members)
    names = _names(members)
    claims: defaultdict[str, list[Declared]] = defaultdict(list)
    for_all: list[Declared] = []
    nameless: list[Declared] = []
    unmatched: list[Unmatched] = []
    for one in files:
        claimed = _claimed(one, names)
        for member_id in claimed:
            claims[member_id].append(one)
        if claimed:
            continue
        if one.group_id is None:
            nameless.append(one)
        elif one.instance_id is not None:
            unmatched.append(_unmatched(one, "no member has its instance id now"))
        elif alike and enough and members:
            for_all.append(one)
        else:
            why = _why(one, len(names["client", one.client_id]), members, alike)
            unmatched.append(_unmatched(one, why, may_start=True))
    bound: dict[str, DeclaredAssignors] = {}
    for member in members:
        proven = proven_family(member.software)
        mine = claims[member.member_id] or [
            one for one in for_all if one.family is None or proven in (None, one.family, "streams")
        ]
        if len({_says(one) for one in mine}) == 1:
            bound[member.member_id] = _declared(mine)
        elif mine:
            why = "two files that differ name the same member, by instance id or client id"
            unmatched += [_unmatched(one, why, may_start=True) for one in mine]
    if nameless:
        # One line for all: a folder may hold many others.
        what = _some(one.where for one in nameless)
        why = "they set no group.id, and no instance id or client id of theirs is a member's alone"
        unmatched.append(Unmatched(what=what, why=why, evidence=nameless[0].evidence))
    return Bound(bound, tuple(dict.fromkeys(unmatched)), replicas)


_Names = defaultdict[tuple[str, str | None], list[str]]


def _names(members: Sequence[Member]) -> _Names:
    """Return (kind, name) → member ids, for each name by which a file can identify a member.

    The kinds are `instance` (instance id), `client` (client id) and `program` (the client id of a
    Streams program, without its thread).
    """
    found: _Names = defaultdict(list)
    for member in members:
        program, thread, _ = member.client_id.rpartition(THREAD)
        called = {"instance": member.instance_id, "client": member.client_id}
        for kind, name in (called | ({"program": program} if thread else {})).items():
            found[kind, name].append(member.member_id)
    return found


def _claimed(one: Declared, names: _Names) -> list[str]:
    static = one.instance_id is not None
    found = names["instance", one.instance_id] if static else names["client", one.client_id]
    if len(found) == 1:
        return found
    return names["program", one.client_id] if one.family == "streams" else []


def _says(one: Declared) -> tuple[object, ...]:
    return one.list, one.group_protocol, one.family, one.upgrade_from


def _declared(claimed: Sequence[Declared]) -> DeclaredAssignors:
    """Return one member's configuration, from the files `claimed` that apply to the member.

    They agree on the assignor list, `group.protocol` and `upgrade.from`. A timeout is None unless
    all files give the same value.
    """
    one = claimed[0]
    written = {other.evidence.at for other in claimed}
    surges = [other.max_surge for other in claimed if other.max_surge is not None]
    return DeclaredAssignors(
        list=one.list,
        group_protocol=one.group_protocol,
        classic_only=tuple(sorted({name for other in claimed for name in other.classic_only})),
        session_timeout_ms=_same_in_all(other.session_timeout_ms for other in claimed),
        max_poll_interval_ms=_same_in_all(other.max_poll_interval_ms for other in claimed),
        held_back_ms=_same_in_all(other.held_back_ms for other in claimed),
        max_surge=next((surge for surge in surges if surge != "0"), next(iter(surges), None)),
        upgrade_from=one.upgrade_from,
        created_at=_latest(other.created_at for other in claimed),
        evidence=replace(one.evidence, at=_latest(written) if None not in written else None),
    )


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


def _same_in_all(values: Iterable[int | None]) -> int | None:
    """Return the value that all files give; None if they differ or if one of them gives none."""
    said = set(values)
    return said.pop() if len(said) == 1 else None


def _why(one: Declared, sharing: int, members: Sequence[Member], alike: bool) -> str:
    if not members:
        return "the group has no members now"
    rows = (
        (one.client_id is None, "it names neither an instance id nor a client id"),
        (sharing > 1, f"client id {one.client_id} is shared by {sharing} members"),
        (True, f"no member has client id {one.client_id}"),
    )
    why = next(why for holds, why in rows if holds)
    too_few = "the files start fewer processes than the group has members"
    return f"{why}, and {too_few if alike else 'the files of this group differ'}"


def _unmatched(one: Declared, why: str, *, may_start: bool = False) -> Unmatched:
    return Unmatched(what=one.where, why=why, evidence=one.evidence, may_start=may_start)


def _replicas(own: Sequence[Declared]) -> int | None:
    by_place = {one.where: one.replicas for one in own}
    counts = [count for count in by_place.values() if count is not None]
    return sum(counts) if counts and len(counts) == len(by_place) else None
