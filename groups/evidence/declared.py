"""Whose configuration file is whose: `Declared` observations bound to members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rebal.groups.clients import proven_family
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import DeclaredAssignors, Member, Unmatched

_NAMED: Final = 3
# Kafka Streams makes its consumers' client ids from the program's, one for each thread.
_THREAD: Final = "-StreamThread-"


class Bound(NamedTuple):
    """Member id → what its next start will use, the files that fit nobody, and the replicas.

    `replicas` is the sum over this group's files; None when there is none, or one does not say.
    """

    by_member: dict[str, DeclaredAssignors]
    unmatched: tuple[Unmatched, ...]
    replicas: int | None


def bind(members: Sequence[Member], declared: Iterable[Declared], group_id: str) -> Bound:
    """The declared lists of the group's members.

    A file belongs to the member with its instance id, else to the one member with its client id,
    else, when all files of the group say the same and start enough processes for all members, to
    every member that no other file claims and that is not proven to be another client. A file that
    does not name its group needs one of the first two. A member that two files claim and that
    differ gets neither.
    """
    files = sorted({one for one in declared if one.group_id in (group_id, None)}, key=repr)
    instances = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
    often = Counter(member.client_id for member in members)
    clients = {m.client_id: m.member_id for m in members if often[m.client_id] == 1}
    threads: dict[str, list[str]] = {}
    for member in members:
        program, _, thread = member.client_id.rpartition(_THREAD)
        if thread:
            threads.setdefault(program, []).append(member.member_id)
    own = [one for one in files if one.group_id is not None]
    replicas = _replicas(own)
    alike = len({_says(one) for one in own}) == 1
    enough = replicas is None or replicas >= len(members)
    claims: dict[str, list[Declared]] = {}
    for_all: list[Declared] = []
    unmatched: list[Unmatched] = []
    nameless: list[Declared] = []
    for one in files:
        if one.instance_id is not None and one.instance_id in instances:
            claims.setdefault(instances[one.instance_id], []).append(one)
        elif one.instance_id is None and one.client_id in clients:
            claims.setdefault(clients[one.client_id], []).append(one)
        elif one.family == "streams" and one.client_id in threads:
            for member_id in threads[one.client_id]:
                claims.setdefault(member_id, []).append(one)
        elif one.group_id is None:
            nameless.append(one)
        elif one.instance_id is not None:
            unmatched.append(_unmatched(one, "no member has its instance id now"))
        elif alike and enough and members:
            for_all.append(one)
        else:
            unmatched.append(_unmatched(one, _why(one, often, members, alike)))
    bound: dict[str, DeclaredAssignors] = {}
    for member in members:
        claimed = claims.get(member.member_id) or [o for o in for_all if _same_client(o, member)]
        if len({_says(one) for one in claimed}) == 1:
            bound[member.member_id] = _declared(claimed)
        elif claimed:
            why = "two files that differ name the same member, by instance id or client id"
            unmatched += [_unmatched(one, why) for one in claimed]
    return Bound(bound, tuple(dict.fromkeys([*unmatched, *_nameless(nameless)])), replicas)


def _says(one: Declared) -> tuple[object, ...]:
    return one.list, one.list_set, one.group_protocol, one.family, one.upgrade_from


def _declared(claimed: Sequence[Declared]) -> DeclaredAssignors:
    """What these files, which say the same of the list, say of one member."""
    one = claimed[0]
    surges = [other.max_surge for other in claimed if other.max_surge is not None]
    return DeclaredAssignors(
        list=one.list if one.list_set else (),
        group_protocol=one.group_protocol,
        classic_only=tuple(sorted({name for other in claimed for name in other.classic_only})),
        session_timeout_ms=_same_in_all(other.session_timeout_ms for other in claimed),
        max_poll_interval_ms=_same_in_all(other.max_poll_interval_ms for other in claimed),
        held_back_ms=_same_in_all(other.held_back_ms for other in claimed),
        max_surge=next((surge for surge in surges if surge != "0"), next(iter(surges), None)),
        upgrade_from=one.upgrade_from,
        evidence=one.evidence,
    )


def _same_in_all(values: Iterable[int | None]) -> int | None:
    """What all files say; None where they differ, or one is silent."""
    said = set(values)
    return said.pop() if len(said) == 1 else None


def _same_client(one: Declared, member: Member) -> bool:
    """False where the file's client and what the member said of itself are different families."""
    proven = proven_family(member.software)
    return one.family is None or proven in (None, one.family, "streams")


def _why(one: Declared, often: Counter[str], members: Sequence[Member], alike: bool) -> str:
    if not members:
        return "the group has no members now"
    if one.client_id is not None and often[one.client_id] > 1:
        why = f"client id {one.client_id} is shared by {often[one.client_id]} members"
    elif one.client_id is not None:
        why = f"no member has client id {one.client_id}"
    else:
        why = "it names neither an instance id nor a client id"
    if alike:
        return f"{why}, and the files start fewer processes than the group has members"
    return f"{why}, and the files of this group differ"


def _nameless(files: Sequence[Declared]) -> list[Unmatched]:
    """One line for all files that name no group: a folder may hold many of other services."""
    if not files:
        return []
    places = sorted({one.where for one in files})
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    why = "they set no group.id, and no instance id or client id of theirs is a member's alone"
    what = f"{', '.join(places[:_NAMED])}{more}"
    return [Unmatched(what=what, why=why, evidence=files[0].evidence)]


def _unmatched(one: Declared, why: str) -> Unmatched:
    return Unmatched(what=one.where, why=why, evidence=one.evidence)


def _replicas(own: Sequence[Declared]) -> int | None:
    by_place = {one.where: one.replicas for one in own}
    counts = [count for count in by_place.values() if count is not None]
    return sum(counts) if counts and len(counts) == len(by_place) else None
