"""Rebalance protocol that members run, and the assignors that all of them support.

The elected assignor alone does not decide the protocol (KIP-429; Kafka's ConsumerCoordinator). Most
clients fix their protocol when they are built, as the highest that ALL assignors of their own list
support, so a member with [cooperative-sticky, range] runs EAGER whatever is elected. franz-go runs
the protocol of the elected assignor.

In a Java client the assignor classes decide the protocol (ConsumerCoordinator asks their
supportedProtocols()), but the coordinator sees only their names. An application's class may have
the name of one of Kafka's assignors: a class that extends RangeAssignor and does not override
name() is called `range`. This module calls such a name borrowed.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import (
    assignor_of,
    assignors,
    eager_only,
    family,
    protocols_of,
    proven_family,
)
from rebal.groups.coordinator import has_whole_lists
from rebal.groups.model import (
    AssignorList,
    Departed,
    Evidence,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Record,
    Source,
    Tri,
)
from rebal.groups.streams import protocol_by_version

_EAGER: Final = RebalanceProtocol.EAGER
_COOPERATIVE: Final = RebalanceProtocol.COOPERATIVE
_NO_KIND: Final = RebalanceProtocol.CANNOT_TELL
# Connect's protocols by their names on the wire; `default` is connect.protocol=eager.
_CONNECT: Final = {"default": _EAGER, "compatible": _COOPERATIVE, "sessioned": _COOPERATIVE}

KIPS: Final = {GroupType.STREAMS: "KIP-1071", GroupType.SHARE: "KIP-932"}
"""Type of a group without client-side assignors → its KIP."""

MEMBER_PROTOCOLS: Final = (_EAGER.value, _COOPERATIVE.value, "consumer", _NO_KIND.value)


class ProtocolAnswer(Record, frozen=True):
    """Rebalance protocol of a member or group: EAGER, COOPERATIVE, mixed (groups) or cannot tell.

    `why` is the reason, in one sentence.
    """

    value: RebalanceProtocol
    why: str
    evidence: tuple[Evidence, ...] = ()


class CommonAssignors(Record, frozen=True, kw_only=True):
    """Assignors that every member's list contains, and assignors that some member's list lacks.

    `doubtful` are assignors that may belong to either. The probe alone says that some list lacks
    them, and it may be wrong, because the coordinator does not certainly hold every member's whole
    list (`coordinator.has_whole_lists`). `source` names the sources of the answers, as text.
    """

    supported: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    source: str = ""


def classic_members_of_a_consumer_group(snapshot: GroupSnapshot) -> tuple[Member, ...]:
    """Return the members of a KIP-848 group that use the classic protocol."""
    if snapshot.group.type is not GroupType.CONSUMER:
        return ()
    return tuple(member for member in snapshot.members if member.protocol_type == "classic")


def group_protocol(snapshot: GroupSnapshot) -> ProtocolAnswer:
    """Return the rebalance protocol that all members run; `mixed` if they differ.

    A KIP-848 group is COOPERATIVE, or `mixed` if one of its members still uses the classic protocol
    and runs EAGER. If all of its members use the classic protocol, their own protocol is the
    answer.
    """
    if obstacle := _obstacle(snapshot):
        return _cannot_tell(obstacle)
    borrowed = borrowed_names(snapshot)
    answers = [member_protocol(member, snapshot, borrowed) for member in snapshot.members]
    said = _in_common(answers)
    if len(classic_members_of_a_consumer_group(snapshot)) == len(answers):
        classic = "the group's type is consumer, and every member speaks the classic protocol"
        return replace(said, why=f"{classic}: {said.why}")
    if snapshot.group.type is GroupType.CONSUMER and not any(a.value is _EAGER for a in answers):
        why = "KIP-848: the coordinator moves partitions one by one, and never stops the rest"
        if count := sum(answer.value is _NO_KIND for answer in answers):
            why += (
                f"; {count} of {len(answers)} members speak the classic protocol, with which it is "
                "not known whether they stop their own partitions"
            )
        return ProtocolAnswer(value=_COOPERATIVE, why=why, evidence=snapshot.described(why))
    return said


def _in_common(answers: Sequence[ProtocolAnswer]) -> ProtocolAnswer:
    # Once from each source: many members repeat it.
    once = {(item.source, item.detail): item for answer in answers for item in answer.evidence}
    evidence = tuple(once.values())
    count = Counter(answer.value for answer in answers)
    if count[_EAGER] and count[_COOPERATIVE]:
        value = RebalanceProtocol.MIXED
        why = (
            f"{count[_EAGER]} of {len(answers)} members run EAGER and stop all their partitions at "
            f"each rebalance, {count[_COOPERATIVE]} run COOPERATIVE"
        )
    elif unknown := [answer for answer in answers if answer.value is _NO_KIND]:
        value, why = _NO_KIND, f"{len(unknown)} of {len(answers)} members: {unknown[0].why}"
    else:
        value, whys = answers[0].value, {answer.why for answer in answers}
        why = whys.pop() if len(whys) == 1 else f"every member runs {value}"
    return ProtocolAnswer(value, why, evidence)


def member_protocol(
    member: Member, snapshot: GroupSnapshot, borrowed: frozenset[str] | None = None
) -> ProtocolAnswer:
    """Return the rebalance protocol that one member runs, by the strongest evidence available.

    Contradicting evidence gives `cannot tell`.

    The assignor name of a custom class proves nothing: only the partitions that the member kept
    show what the class supports. `borrowed` is the result of `borrowed_names(snapshot)`; pass it
    when calling for many members, so that it is computed once.
    """
    borrowed = borrowed_names(snapshot) if borrowed is None else borrowed
    if obstacle := _obstacle(snapshot):
        return _cannot_tell(obstacle)
    group = snapshot.group
    if group.type is GroupType.CONSUMER:
        if member.protocol_type != "classic":
            why = "KIP-848: the member revokes only the partitions that the coordinator names"
            return ProtocolAnswer(_COOPERATIVE, why, snapshot.described(why))
        return _by_list(member, None, borrowed) or _cannot_tell("its assignor list is not known")
    if not (elected := group.assignor):
        return _cannot_tell("no assignor is elected")
    if group.protocol_type == "connect":
        return _of_worker(elected, snapshot)
    member = undisputed(member, snapshot)
    known = member.assignors
    if at_odds := _contradiction(known, elected):
        why = f"its evidence contradicts itself: {at_odds}"
        return ProtocolAnswer(value=_NO_KIND, why=why, evidence=known.evidence)
    by_list = _by_program(member) if elected == "stream" else _by_list(member, elected, borrowed)
    owned = _by_partitions(member, allow_eager=by_list is None)
    not_kafkas = may_be_custom_class(member, elected, borrowed)
    named = by_list
    if named is None and eager_only(elected) is Tri.YES and not not_kafkas:
        why = f"the elected assignor {elected} supports EAGER alone, and every member has it"
        named = ProtocolAnswer(_EAGER, why, snapshot.described(why))
    if named is not None and owned is not None and named.value is not owned.value:
        return ProtocolAnswer(
            value=_NO_KIND,
            why=f"its evidence contradicts itself: {named.why}, but {owned.why}",
            evidence=(*named.evidence, *owned.evidence),
        )
    if named is not None or owned is not None:
        return named or owned or _unknown(elected, known)
    others = [name for name in known.list if may_be_custom_class(member, name, borrowed)]
    if not_kafkas or others:
        name = elected if not_kafkas else others[0]
        by = f"is {shown}" if (shown := class_of(member, name)) else "may be that of another member"
        return _cannot_tell(
            f"the class behind {name} {by}, which is not Kafka's own: which rebalance protocols it "
            "supports only a rebalance shows"
        )
    return _by_family(member, elected) or _unknown(elected, known)


def undisputed(member: Member, snapshot: GroupSnapshot) -> Member:
    """Return `member`, with its assignor list marked unknown if evidence about it is contradictory.

    Rule RB902 reports the contradiction.
    """
    disputed = any(one.member_id == member.member_id for one in snapshot.contradictions)
    return replace(member, assignors=AssignorList()) if disputed else member


def members_by_protocol(snapshot: GroupSnapshot) -> dict[str, int]:
    """Return protocol → number of members that run it.

    The keys are `EAGER`, `COOPERATIVE`, `consumer` and `cannot tell`. A member that uses the
    consumer protocol (KIP-848) counts only as `consumer`.
    """
    borrowed = borrowed_names(snapshot)
    found = dict.fromkeys(MEMBER_PROTOCOLS, 0)
    for member in snapshot.members:
        kip848 = snapshot.group.type is GroupType.CONSUMER and member.protocol_type != "classic"
        found["consumer" if kip848 else member_protocol(member, snapshot, borrowed).value] += 1
    return found


def common_assignors(snapshot: GroupSnapshot) -> CommonAssignors:
    """Return the assignors proven to be in every member's list, and those proven missing from one.

    The proof comes from the elected assignor, the exact lists and the probe. Lists that evidence
    contradicts prove nothing.
    """
    if not snapshot.has_assignor_lists or not snapshot.members:
        return CommonAssignors(source="no list of assignors is kept for this group")
    supported, unsupported, doubtful, sources = (dict[str, None]() for _ in range(4))
    if snapshot.group.assignor and snapshot.group.state is GroupState.STABLE:
        supported[snapshot.group.assignor] = sources["elected"] = None
    lists = [undisputed(member, snapshot).assignors for member in snapshot.members]
    exact = [known for known in lists if known.knowledge is Knowledge.EXACT]
    for name in dict.fromkeys(name for known in exact for name in known.list):
        if any(name not in known.list for known in exact):
            unsupported[name] = None
        elif len(exact) == len(snapshot.members):
            supported[name] = None
    unsupported.update(dict.fromkeys(name for known in lists for name in known.lacks))
    told = [one for one in lists if one.knowledge is Knowledge.EXACT or one.lacks]
    sources.update(dict.fromkeys(str(said.source) for one in told for said in one.evidence))
    for answer in snapshot.probe_answers:
        if answer.supported is Tri.NO and not has_whole_lists(snapshot):
            doubtful[answer.assignor] = None
        elif answer.supported is not Tri.CANNOT_TELL:
            (supported if answer.supported is Tri.YES else unsupported)[answer.assignor] = None
            sources[str(Source.PROBE)] = None
    return CommonAssignors(
        supported=tuple(supported),
        unsupported=tuple(unsupported),
        doubtful=tuple(name for name in doubtful if name not in {**supported, **unsupported}),
        source=", ".join(sources) or "no evidence was read",
    )


def _obstacle(snapshot: GroupSnapshot) -> str | None:
    """Return the reason why no rebalance protocol can be named for this group; None if one can."""
    group = snapshot.group
    rows = (
        (
            group.type in KIPS,
            f"a {group.type} group has no assignors of its members' own ({KIPS.get(group.type)})",
        ),
        (
            group.protocol_type not in (None, "", "consumer", "connect"),
            f"not a consumer group: its protocol type is {group.protocol_type}",
        ),
        (
            not snapshot.members or group.state in (GroupState.EMPTY, GroupState.DEAD),
            "the group has no members now: nothing runs",
        ),
        (
            group.type is not GroupType.CONSUMER and group.state is not GroupState.STABLE,
            f"the group is {group.state}: no protocol is decided until it is Stable",
        ),
    )
    return next((why for holds, why in rows if holds), None)


def _contradiction(known: AssignorList, elected: str) -> str | None:
    """Return how `known` contradicts itself or the elected assignor, as a clause; None if not."""
    if known.knowledge is Knowledge.EXACT:
        return None if elected in known.list else f"{elected} is elected and not in its list"
    both = next((name for name in known.at_least if name in known.lacks), None)
    return None if both is None else f"its list both holds and lacks {both}"


def _by_list(
    member: Member, elected: str | None, borrowed: frozenset[str]
) -> ProtocolAnswer | None:
    """Return the protocol that the member's exact list and client family prove, else None."""
    known = member.assignors
    if known.knowledge is not Knowledge.EXACT or not known.list:
        return None
    key = proven_family(member.software)
    client = family(key)
    own = frozenset(name for name in known.list if may_be_custom_class(member, name, borrowed))
    fixed = list_protocol(known.list, key, own)
    asked = known.list if elected is None else (elected,)
    votes = {list_protocol((name,), key, own) for name in asked}
    voted = votes.pop() if len(votes) == 1 else None
    shown = f"its list is [{', '.join(known.list)}]"
    if client.key and not client.follows_vote:
        value, why = (
            fixed,
            f"{shown}, and the client runs the highest protocol that all its assignors support",
        )
    elif client.key:
        chosen = elected or "any of them, which all run one protocol"
        value, why = voted, f"{shown}, and the client follows the vote for {chosen}"
    else:
        value = fixed if fixed is voted or len(set(known.list)) == 1 else None
        why = f"{shown}, whatever the client"
    return None if value is None else ProtocolAnswer(value, why, known.evidence)


def _by_program(member: Member) -> ProtocolAnswer | None:
    """Return the protocol that a Kafka Streams member was seen to run, else that of its version.

    Return None if neither is known.
    """
    if member.ran is not None:
        value = member.ran.value
        shown = "kept" if value is _COOPERATIVE else "gave up"
        printed = any(item.source is Source.CLIENT_LOG for item in member.ran.evidence)
        setting = member.ran.upgrade_from
        by = "" if setting is None else f", with upgrade.from={setting or '(unset)'}"
        why = (
            f"its log says that it was built to run {value}{by}"
            if printed
            else f"it {shown} its partitions when it rejoined"
        )
        return ProtocolAnswer(value, why, member.ran.evidence)
    told = protocol_by_version(member.software)
    evidence = member.software.evidence if member.software is not None else ()
    return None if told is None else ProtocolAnswer(*told, evidence)


def _of_worker(elected: str, snapshot: GroupSnapshot) -> ProtocolAnswer:
    """Return the rebalance protocol of Connect workers, which `elected` decides for all of them.

    `elected` is the elected Connect protocol, such as `sessioned` (KIP-415, KIP-507). The answer
    is `cannot tell` for any other name.
    """
    if elected not in _CONNECT:
        return _cannot_tell(f"{elected} is no protocol of Connect workers")
    why = f"the workers' elected protocol is {elected}, which every worker follows"
    return ProtocolAnswer(_CONNECT[elected], why, snapshot.described(why))


def list_protocol(
    names: Sequence[str], key: str | None, own: frozenset[str] = frozenset()
) -> RebalanceProtocol | None:
    """Return the highest rebalance protocol that all assignors in `names` support; None if unknown.

    One assignor that supports EAGER alone decides EAGER, even beside unknown names. `key` is the
    client's family. `own` are the names that may belong to a custom class; they count as unknown.
    """
    supported = [None if name in own else protocols_of(name, key) for name in names]
    if frozenset({_EAGER}) in supported:
        return _EAGER
    return None if None in supported else _COOPERATIVE


def _by_partitions(member: Member, *, allow_eager: bool) -> ProtocolAnswer | None:
    """Return the protocol that the member's partitions showed when it last joined, else None.

    It is COOPERATIVE if the member still owned partitions. It is EAGER if the member had revoked
    all of them and `allow_eager` is True, which the caller passes if the assignor list proves no
    protocol.
    """
    if kept := member.kept_partitions:
        why = f"it kept its partitions ({kept}) when it last joined, as only COOPERATIVE members do"
        evidence = Evidence(source=Source.SUBSCRIPTION, detail=f"{kept} owned partitions sent")
        return ProtocolAnswer(_COOPERATIVE, why, (evidence,))
    if allow_eager and member.ran is not None and member.ran.value is _EAGER:
        why = "it gave up all its partitions when it rejoined, as only EAGER members do"
        return ProtocolAnswer(_EAGER, why, member.ran.evidence)
    return None


def _by_family(member: Member, elected: str) -> ProtocolAnswer | None:
    """Return the protocol that the client family proves for a member whose list contains `elected`.

    `elected` is an assignor that is not eager-only. None if the family proves nothing.
    """
    client = family(proven_family(member.software))
    if not client.key or member.software is None:
        return None
    evidence = member.software.evidence
    old = next((n for n in member.assignors.at_least if eager_only(n) is Tri.YES), None)
    if client.follows_vote:
        value = list_protocol((elected,), client.key)
        why = f"{client.title} follows the vote for {elected}"
        return None if value is None else ProtocolAnswer(value, why, evidence)
    if old is not None and client.mixed is Tri.YES:
        why = f"its list holds {old} too, so {client.title} runs EAGER whatever is elected"
        return ProtocolAnswer(_EAGER, why, (*evidence, *member.assignors.evidence))
    if client.mixed_list == "refused" and list_protocol((elected,), client.key) is _COOPERATIVE:
        why = f"{client.title} does not start with {elected} and an eager assignor in one list"
        return ProtocolAnswer(_COOPERATIVE, why, evidence)
    return None


def _unknown(elected: str, known: AssignorList) -> ProtocolAnswer:
    own = ", ".join(n for n in known.list if eager_only(n) is Tri.CANNOT_TELL)
    rows = (
        (
            elected == "stream",
            "Kafka Streams from 2.4 to 3.9 runs COOPERATIVE unless upgrade.from is 2.3 or less: "
            "its own log shows that, or what it does at the next rebalance",
        ),
        (
            eager_only(elected) is Tri.CANNOT_TELL,
            f"the assignor {elected} is not known, nor is its rebalance protocol",
        ),
        (
            known.knowledge is Knowledge.EXACT,
            f"which rebalance protocols {own} supports is not known",
        ),
        (
            True,
            f"its list is not known: with {elected} alone it runs COOPERATIVE, with an eager "
            "assignor beside it EAGER",
        ),
    )
    return _cannot_tell(next(why for holds, why in rows if holds))


def _cannot_tell(why: str) -> ProtocolAnswer:
    return ProtocolAnswer(value=_NO_KIND, why=why)


def borrowed_names(snapshot: GroupSnapshot) -> frozenset[str]:
    """Return the names of Kafka's assignors that a custom class of some member has.

    Either the member's log shows the class, or the member did with its partitions what Kafka's
    class would not do.
    """
    return frozenset().union(
        *(borrowed_in(member.assignors) | disproved(member) for member in snapshot.members)
    )


def disproved(member: Member) -> frozenset[str]:
    """Return the names in the member's list that cannot be Kafka's own assignors.

    The member revoked all its partitions when it rejoined, as EAGER members do, although each name
    in its list is that of an assignor of Kafka that supports COOPERATIVE. So custom classes have
    these names. Empty for any other member, and where the member's own log shows Kafka's classes.
    """
    names = member.assignors.list
    is_eager = member.ran is not None and member.ran.value is _EAGER
    if not is_eager or _prints_kafkas(member.assignors):
        return frozenset()
    return frozenset(names if all(eager_only(name) is Tri.NO for name in names) else ())


def _prints_kafkas(known: AssignorList) -> bool:
    """Return whether the member's own log shows its list and all its classes are Kafka's own.

    `known.classes` is then empty, because classes are kept only if one of them is custom.
    """
    printed = any(item.source is Source.CLIENT_LOG for item in known.evidence)
    return known.knowledge is Knowledge.EXACT and printed and not known.classes


def borrowed_in(known: AssignorList | Departed) -> frozenset[str]:
    """Return the names of Kafka's assignors in this list whose class is not Kafka's own."""
    return frozenset(
        name
        for name, each in zip(known.list, known.classes, strict=False)
        if name in assignors() and assignor_of(each) != name
    )


def class_of(member: Member, name: str) -> str | None:
    """Return the class of the assignor `name` in the member's list; None if it is not known.

    Only a member's own log shows classes, and they are kept only if one of them is a custom class.
    """
    return dict(zip(member.assignors.list, member.assignors.classes, strict=False)).get(name)


def may_be_custom_class(member: Member, name: str, borrowed: frozenset[str]) -> bool:
    """Return True if `name` in the member's assignor list is or may be a custom class's name.

    It is one if the member's own log shows the class, or if its partitions disprove Kafka's class.
    It may be one if another member uses the name for a custom class (`borrowed`), this member's log
    does not show its classes, and the member may be a Java client.
    """
    if name not in borrowed:
        return False
    if member.assignors.classes:
        return name in borrowed_in(member.assignors)
    if _prints_kafkas(member.assignors):
        return False
    # The clients whose assignors are Java classes, and one that is not proven.
    java = (None, "java", "streams")
    return name in disproved(member) or proven_family(member.software) in java
