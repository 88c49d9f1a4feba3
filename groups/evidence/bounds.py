"""Bounds of assignor lists that no log shows, and the user's assumptions about them (`--assume`).

Evidence that cannot all be true is named (`contradictions`).

An assumption is `SELECTOR=ID:LIST`, such as `client-id=billing:range,cooperative-sticky`. The
selector is `client-id` (one member has it), `every-client-id` (all members that have it),
`instance-id` or `member-id`. LIST is in order of preference. An assumption fills a gap and never
overrules evidence.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import assignor_of, eager_only, family, fixes_protocol, proven_family
from rebal.groups.coordinator import has_whole_lists
from rebal.groups.errors import AssumptionError
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
from rebal.groups.protocol import borrowed_names, may_be_custom_class

# the eager-only assignors that a client with a fixed rebalance protocol can hold beside it
_EAGER_ONLY: Final = ("range", "roundrobin", "sticky")


def with_bounds(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return `snapshot` with the bounds (`at_least`, `lacks`) of assignor lists that are not exact.

    Only a Stable classic group has bounds. A list contains at least the elected assignor and each
    assignor that the probe finds in every list. It lacks eager-only assignors if the member kept
    its partitions when it rejoined and its client fixes its protocol when it is built. It lacks the
    assignors of the other protocol if the client rejects mixed lists, and all cooperative ones if
    the client has none. It lacks an assignor that the probe denies if the lists of all other
    members are known to contain that assignor.
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
    """Yield the contradictions in the evidence of the merged snapshot."""
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
    """Yield each contradiction about the member's assignor list, as a clause and evidence.

    The evidence is that which contradicts the list; it is empty if the bounds of a list that is not
    exact contradict each other. `borrowed` are the names of Kafka's assignors that custom classes
    of the group have (`protocol.borrowed_names`).
    """
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
    eager = [
        name
        for name in known.list
        if eager_only(name) is Tri.YES and not may_be_custom_class(member, name, borrowed)
    ]
    if kept and eager and fixes_protocol(member.software):
        sent = Evidence(source=Source.SUBSCRIPTION, detail=f"{kept} owned partitions")
        yield (
            f"it kept {kept} partitions when it joined, as no member with {eager[0]} does, and its "
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
    if (
        (kept := member.kept_partitions)
        and fixes_protocol(member.software)
        and eager_only(elected) is not Tri.YES
    ):
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
    """Return the members, one of them with the bound that a probe's "no" proves.

    If all lists but one are known to contain the assignor, that one lacks it. Otherwise the members
    are returned unchanged.
    """
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


EVERY_CLIENT_ID: Final = "every-client-id"
_SELECTORS: Final = ("client-id", EVERY_CLIENT_ID, "instance-id", "member-id")


def apply_assumptions(
    snapshot: GroupSnapshot, texts: Iterable[str]
) -> tuple[GroupSnapshot, tuple[str, ...]]:
    """Return `snapshot` with the assumed lists, and one sentence for each assumption.

    The sentences are for `Plan.assumptions`. An assumption that only repeats what evidence shows
    changes nothing and gives no sentence. Without texts the snapshot is returned as it is.

    Raises:
        AssumptionError: a text cannot be read, matches no member, or contradicts evidence.
    """
    if not (said := list(dict.fromkeys(texts))):
        return snapshot, ()
    if not snapshot.has_assignor_lists or snapshot.group.protocol_type not in ("consumer", None):
        raise AssumptionError(
            f"--assume {said[0]}: only members of classic consumer groups have assignor lists, and "
            f"{snapshot.group.group_id} is not such a group: leave --assume out."
        )
    lists: dict[str, tuple[str, tuple[str, ...]]] = {}
    sentences: list[str] = []
    for text in said:
        selector, value, names = _read(text, snapshot)
        open_ = [
            member
            for member in _chosen(text, selector, value, snapshot.members)
            if not _shown_already(text, member, names)
        ]
        for member in open_:
            other, before = lists.setdefault(member.member_id, (text, names))
            if before != names:
                raise AssumptionError(
                    f"--assume {text}: --assume {other} gives {member.member_id} another list: "
                    "keep one of the two."
                )
        if open_:
            sentences.append(_sentence(selector, value, names, len(open_)))
    known = {
        member_id: AssignorList(
            knowledge=Knowledge.EXACT,
            list=names,
            evidence=(Evidence(source=Source.ASSUMED, detail=text),),
        )
        for member_id, (text, names) in lists.items()
    }
    made = replace(
        snapshot,
        members=tuple(
            replace(member, assignors=known.get(member.member_id, member.assignors))
            for member in snapshot.members
        ),
    )
    _hold_against_evidence(snapshot, made, said, lists)
    return made, tuple(sentences)


def _read(text: str, snapshot: GroupSnapshot) -> tuple[str, str, tuple[str, ...]]:
    """Parse an assumption and return its selector, id and assignor names.

    The id may contain `=`, `:` and commas; the names contain no colon.

    Raises:
        AssumptionError: the text has another form, names an unknown assignor, or names one twice.
    """
    selector, _, rest = text.partition("=")
    value, _, listed = rest.rpartition(":")
    names = [name.strip() for name in listed.split(",")]
    if selector not in _SELECTORS or not value or not all(names):
        raise AssumptionError(
            f"--assume: expected {'|'.join(_SELECTORS)}=ID:LIST, such as "
            "client-id=billing:range,cooperative-sticky (yours is not repeated here)."
        )
    lists = [member.assignors for member in snapshot.members]
    met = {name for one in lists for name in (*one.list, *one.at_least, *one.lacks)}
    met |= {snapshot.group.assignor} if snapshot.group.assignor else set()
    plain = [name if name in met else assignor_of(name) for name in names]
    for name, known in zip(names, plain, strict=True):
        if known is None:
            raise AssumptionError(
                f"--assume {text}: {name} is no assignor that Kafka's clients or this group have; "
                "use the names that rebal inspect prints, such as range or cooperative-sticky."
            )
    found = tuple(filter(None, plain))
    if len(set(found)) < len(found):
        raise AssumptionError(f"--assume {text}: an assignor stands in it twice: name each once.")
    return selector, value, found


def _chosen(
    text: str, selector: str, value: str, members: tuple[Member, ...]
) -> tuple[Member, ...]:
    field = {"instance-id": "instance_id", "member-id": "member_id"}.get(selector, "client_id")
    found = tuple(member for member in members if getattr(member, field) == value)
    if not found:
        raise AssumptionError(
            f"--assume {text}: no member has the {field.replace('_', ' ')} {value}; rebal inspect "
            "shows the ids of those that are in the group."
        )
    if selector == "client-id" and len(found) > 1:
        raise AssumptionError(
            f"--assume {text}: {len(found)} members share this client id; if all of them have "
            f"this list say {EVERY_CLIENT_ID}=…, else name each by instance-id or member-id."
        )
    return found


def _shown_already(text: str, member: Member, names: tuple[str, ...]) -> bool:
    """Return True if evidence shows exactly the list `names`, False if it leaves the list open.

    Raises:
        AssumptionError: evidence proves that the member has another list.
    """
    known = member.assignors
    if known.knowledge is Knowledge.EXACT:
        if known.list == names:
            return True
        sources = ", ".join(sorted({item.source for item in known.evidence})) or "evidence"
        raise AssumptionError(
            f"--assume {text}: the {sources} shows that {member.member_id} runs "
            f"[{', '.join(known.list)}], and an assumption does not overrule it: leave it out."
        )
    if lacked := [name for name in names if name in known.lacks]:
        raise AssumptionError(
            f"--assume {text}: it is proven that {member.member_id} has no {', '.join(lacked)}, "
            "and an assumption does not overrule that: leave it out."
        )
    if missing := [name for name in known.at_least if name not in names]:
        raise AssumptionError(
            f"--assume {text}: it is proven that {member.member_id} has {', '.join(missing)}: "
            "say the whole list."
        )
    return False


def _hold_against_evidence(
    before: GroupSnapshot,
    after: GroupSnapshot,
    said: list[str],
    lists: dict[str, tuple[str, tuple[str, ...]]],
) -> None:
    """Raise AssumptionError if the assumptions cause a contradiction in the evidence.

    `before` is the snapshot without the assumed lists, `after` the snapshot with them. `said` are
    the texts of --assume. `lists` maps a member id to the text about this member and to the list
    that the text assumes.
    """
    known = {
        (item.member_id, item.what) for item in (*before.contradictions, *contradictions(before))
    }
    for item in contradictions(after):
        if (item.member_id, item.what) not in known:
            text = lists[item.member_id][0] if item.member_id in lists else said[0]
            raise AssumptionError(
                f"--assume {text}: evidence contradicts it: {item.what}; leave it out or correct "
                "it."
            )


def _sentence(selector: str, value: str, names: tuple[str, ...], count: int) -> str:
    who = f"{selector.removeprefix('every-').replace('-', ' ')} {value}"
    every = f"every member with {who} ({count})" if selector == EVERY_CLIENT_ID else who
    return f"{every} runs [{', '.join(names)}]"
