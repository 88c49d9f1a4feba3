"""Bounds of assignor lists that no log shows, and evidence that cannot all be true."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from rebal.groups.classes import borrowed_names, not_by_name
from rebal.groups.clients import eager_only, family, fixes_protocol, proven_family
from rebal.groups.coordinator import has_whole_lists
from rebal.groups.evidence.exact import evidence_key
from rebal.groups.evidence.fingerprint import COOPERATIVE_STICKY
from rebal.groups.model import (
    AssignorList,
    Contradiction,
    Evidence,
    GroupSnapshot,
    GroupState,
    Knowledge,
    Member,
    ProbeAnswer,
    Source,
    Tri,
)

# the eager-only assignors that a client with a fixed rebalance protocol can hold beside it
_EAGER_ONLY: Final = ("range", "roundrobin", "sticky")


def with_bounds(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return `snapshot` with `at_least` and `lacks` of each member without an exact list.

    Only a Stable classic group has bounds. A list holds at least the elected assignor and each
    assignor that the probe finds in every list. It lacks eager-only assignors if the member kept
    its partitions when it rejoined and its client fixes its protocol when it is built. It lacks the
    assignors of the other protocol if the client rejects mixed lists, and all cooperative ones if
    the client has none. It lacks an assignor that the probe denies if every other member is known
    to hold that one.
    """
    if not snapshot.has_assignor_lists or snapshot.group.state is not GroupState.STABLE:
        return snapshot
    borrowed = borrowed_names(snapshot)
    members = [_bounded(member, snapshot, borrowed) for member in snapshot.members]
    for answer in snapshot.probe_answers:
        if answer.supported is Tri.NO and has_whole_lists(snapshot):
            members = _all_but_one(members, answer)
    return replace(snapshot, members=tuple(members))


def contradictions(snapshot: GroupSnapshot) -> Iterator[Contradiction]:
    """Yield evidence of the merged snapshot that cannot all be true."""
    if not snapshot.has_assignor_lists or snapshot.group.state is not GroupState.STABLE:
        return
    borrowed = borrowed_names(snapshot)
    for member in snapshot.members:
        for what, said in _at_odds(member, snapshot, borrowed):
            evidence = (*member.assignors.evidence, *said)
            yield Contradiction(member_id=member.member_id, what=what, evidence=evidence)
    for answer in snapshot.probe_answers:
        held = snapshot.members and all(
            member.assignors.holds(answer.assignor) is Tri.YES for member in snapshot.members
        )
        if answer.supported is Tri.NO and held and has_whole_lists(snapshot):
            yield Contradiction(
                what=f"the probe says that some list lacks {answer.assignor}, and all hold it",
                evidence=(_probed(answer),),
            )


def _at_odds(
    member: Member, snapshot: GroupSnapshot, borrowed: frozenset[str]
) -> Iterator[tuple[str, tuple[Evidence, ...]]]:
    """Yield each contradiction about the member's list, and the other side's evidence."""
    known, elected, kept = member.assignors, snapshot.group.assignor, member.kept_partitions
    if known.knowledge is not Knowledge.EXACT:
        for name in known.at_least:
            if name in known.lacks:
                yield f"its list both holds and lacks {name}", ()
        return
    shown = f"[{', '.join(known.list)}]"
    if elected and elected not in known.list:
        what = f"{elected} is elected, so every list holds it, and this one is {shown}"
        yield what, snapshot.described(f"elected: {elected}")
    for answer in snapshot.probe_answers:
        if answer.supported is Tri.YES and answer.assignor not in known.list:
            yield (
                f"the probe says that every list holds {answer.assignor}, this one is {shown}",
                (_probed(answer),),
            )
    eager = next(
        (
            name
            for name in known.list
            if eager_only(name) is Tri.YES and not not_by_name(member, name, borrowed)
        ),
        None,
    )
    if kept and eager and fixes_protocol(member.software):
        sent = Evidence(source=Source.SUBSCRIPTION, detail=f"{kept} owned partitions")
        yield (
            f"it kept {kept} partitions when it joined, as no member with {eager} does, and its "
            f"list is {shown}",
            (sent,),
        )


def _bounded(member: Member, snapshot: GroupSnapshot, borrowed: frozenset[str]) -> Member:
    if member.assignors.knowledge is Knowledge.EXACT:
        return member
    elected = snapshot.group.assignor
    if elected:
        (said,) = snapshot.described(f"{elected} is elected, so every list holds it")
        member = _with(member, said, at_least=(elected,))
    for answer in snapshot.probe_answers:
        if answer.supported is Tri.YES:
            member = _with(member, _probed(answer), at_least=(answer.assignor,))
    if not elected:
        return member
    kept = member.kept_partitions
    if kept and fixes_protocol(member.software) and eager_only(elected) is not Tri.YES:
        detail = f"kept {kept} partitions when it joined: no eager-only assignor in its list"
        said = Evidence(source=Source.SUBSCRIPTION, at=snapshot.captured_at, detail=detail)
        # A class that is not Kafka's own may be COOPERATIVE under one of these names.
        member = _with(member, said, lacks=tuple(n for n in _EAGER_ONLY if n not in borrowed))
    return _with_family_bounds(member, elected)


def _with_family_bounds(member: Member, elected: str) -> Member:
    client = family(proven_family(member.software))
    if not client.key or member.software is None:
        return member
    version = member.software.version
    by = next(reversed(member.software.evidence), Evidence(source=Source.ASSUMED))
    if client.cooperative(version) is Tri.NO:
        shown = f"{client.title} {version or ''}".strip()
        evidence = replace(by, detail=f"{shown} has no cooperative assignor")
        return _with(member, evidence, lacks=(COOPERATIVE_STICKY,))
    if client.mixed_list == "refused":
        kind = {Tri.YES: (COOPERATIVE_STICKY,), Tri.NO: _EAGER_ONLY}.get(eager_only(elected), ())
        evidence = replace(by, detail=f"{client.title} rejects mixed lists")
        return _with(member, evidence, lacks=kind) if kind else member
    return member


def _all_but_one(members: list[Member], answer: ProbeAnswer) -> list[Member]:
    """Apply a probe's "no" to the one member that can lack the assignor, if there is only one."""
    holds = [member.assignors.holds(answer.assignor) for member in members]
    if Tri.NO in holds or holds.count(Tri.CANNOT_TELL) != 1:
        return members
    detail = f"some list lacks {answer.assignor}, and every other member's holds it"
    said = replace(_probed(answer), detail=detail)
    return [
        _with(member, said, lacks=(answer.assignor,)) if hold is Tri.CANNOT_TELL else member
        for member, hold in zip(members, holds, strict=True)
    ]


def _with(
    member: Member,
    evidence: Evidence,
    at_least: tuple[str, ...] = (),
    lacks: tuple[str, ...] = (),
) -> Member:
    known = member.assignors
    unknown = known.knowledge is Knowledge.UNKNOWN
    made = AssignorList(
        knowledge=Knowledge.BOUNDED if unknown else known.knowledge,
        list=known.list,
        at_least=tuple(sorted({*known.at_least, *at_least})),
        lacks=tuple(sorted({*known.lacks, *lacks})),
        evidence=tuple(sorted({*known.evidence, evidence}, key=evidence_key)),
    )
    return replace(member, assignors=made)


def _probed(answer: ProbeAnswer) -> Evidence:
    said = "every list holds it" if answer.supported is Tri.YES else "some list lacks it"
    return Evidence(source=Source.PROBE, at=answer.at, detail=f"{answer.assignor}: {said}")
