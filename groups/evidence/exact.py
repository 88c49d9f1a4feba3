"""Facts about one member that its joins prove: exact assignor list, client software, timeouts."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import assignor_of, family_of
from rebal.groups.evidence.observations import Joined, Ran, Refused
from rebal.groups.model import (
    AssignorList,
    Contradiction,
    Evidence,
    Knowledge,
    Member,
    RanProtocol,
    RebalanceProtocol,
    Software,
    Source,
    Timeouts,
)

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


def with_joins(member: Member, joins: Iterable[Joined]) -> tuple[Member, tuple[Contradiction, ...]]:
    """Return `member` with the facts that its joins show, and the contradictions among them.

    A client's list never changes, so two different lists of one member id contradict each other:
    the one of a request log is kept, else the newest, and the contradiction is recorded. A join
    with classes and no list adds the classes to the list that another source shows.
    """
    if not (seen := list(joins)):
        return member, ()
    if len(seen) > 1:
        seen.sort(key=lambda join: (when(join.at), join.log, join.line, repr(join)))
    known = member.assignors
    lists = {known.list: list(known.evidence)} if known.knowledge is Knowledge.EXACT else {}
    for join in seen:
        if join.list:
            lists.setdefault(join.list, []).append(join.evidence)
    if all(map(unnamed, seen)):
        lists = {n: found for n, found in lists.items() if not any(begins(n, o) for o in lists)}
    # The wire shows what was sent; a client's own log has to be tied to its member id first.
    newest = max(
        lists,
        key=lambda names: (
            any(e.source is Source.REQUEST_LOG for e in lists[names]),
            max(when(e.at) for e in lists[names]),
            names,
        ),
        default=(),
    )
    accepted = [join for join in seen if join.accepted]
    last = next(reversed(logged_by_brokers(accepted) or accepted), None)
    began = [join.at for join in seen if join.new and join.at is not None]
    by_brokers = any(item.source is Source.REQUEST_LOG for item in known.evidence)
    later = last is not None and (
        member.joined_at is None
        or (last in logged_by_brokers(accepted), when(last.at)) >= (by_brokers, member.joined_at)
    )
    if last is not None and last.instance_id is not None:
        # The coordinator keeps the client id and address of a static member's first process.
        host = f"/{last.host.removeprefix('/')}" if last.host else member.host
        member = replace(member, client_id=last.client_id or member.client_id, host=host)
    bound = replace(
        member,
        assignors=_exact(known, seen, newest, lists[newest]) if lists else known,
        software=_software(member.software, seen, newest),
        timeouts=_timeouts(member.timeouts, seen),
        instance_id=member.instance_id or seen[-1].instance_id,
        joined_at=last.at if last is not None and later else member.joined_at,
        first_joined_at=min([*began, *filter(None, [member.first_joined_at])], default=None),
        join_reason=last.reason if last is not None and later else member.join_reason,
    )
    if len(lists) < 2:
        return bound, ()
    shown = " and ".join(f"[{', '.join(names)}]" for names in sorted(lists))
    contradiction = Contradiction(
        member_id=member.member_id,
        what=f"one member id joined with different lists: {shown}",
        evidence=tuple(e for names in sorted(lists) for e in newest_by_source(lists[names])),
    )
    return bound, (contradiction,)


def logged_by_brokers(joins: Iterable[Joined]) -> list[Joined]:
    """Return the joins that broker logs show: only these are dated by a broker's clock."""
    brokers = (Source.REQUEST_LOG, Source.BROKER_LOG)
    return [join for join in joins if join.evidence.source in brokers]


def _exact(
    known: AssignorList, seen: Sequence[Joined], names: tuple[str, ...], said: Sequence[Evidence]
) -> AssignorList:
    fitting = [one for one in seen if one.list == names or _fits(one.classes, names)]
    built = [one.built_at for one in fitting if one.built_at is not None]
    same = known.list == names
    return AssignorList(
        knowledge=Knowledge.EXACT,
        list=names,
        classes=next(
            (one.classes for one in fitting if one.classes), known.classes if same else ()
        ),
        since=min(built, default=known.since if same else None),
        evidence=newest_by_source(said),
    )


def _fits(classes: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return len(classes) == len(names) and all(
        assignor_of(each) in (None, name) for each, name in zip(classes, names, strict=True)
    )


def unnamed(seen: Joined | Refused) -> bool:
    """Return whether the observed join `seen` shows no software name (KIP-511) of its client."""
    return seen.software is None or seen.software.name is None


def begins(names: tuple[str, ...], longer: tuple[str, ...]) -> bool:
    """Return whether `longer` begins with `names` and has more.

    aiokafka, which does not send its name, sends a JoinGroup for each assignor of its list, each
    with one assignor more (0.14.0, group_coordinator.py): the longest is its whole list.
    """
    return len(names) < len(longer) and longer[: len(names)] == names


def with_ran(member: Member, seen: Iterable[Ran]) -> tuple[Member, tuple[Contradiction, ...]]:
    """Return `member` with the rebalance protocol that it was observed to run, and contradictions.

    A member never changes its protocol, so if two observations of a Streams member differ, neither
    is kept. For another member whose list is known, kept partitions prove COOPERATIVE and outweigh
    an observation of EAGER: a member that never received its assignment has no partitions to keep.
    """
    seen, known = tuple(seen), member.ran
    settings = {known.upgrade_from if known else None, *(one.upgrade_from for one in seen)} - {None}
    found = {} if known is None else {known.value: list(known.evidence)}
    for one in seen:
        found.setdefault(one.value, []).append(one.evidence)
    names = member.assignors.list
    if names and "stream" not in names and (len(found) > 1 or member.kept_partitions):
        found.pop(RebalanceProtocol.EAGER, None)
    if not found:
        return replace(member, ran=None), ()
    if len(found) == 1:
        value, items = next(iter(found.items()))
        ran = RanProtocol(
            value=value,
            upgrade_from=settings.pop() if len(settings) == 1 else None,
            evidence=newest_by_source(items),
        )
        return replace(member, ran=ran), ()
    contradiction = Contradiction(
        member_id=member.member_id,
        what="one member id was seen to run both EAGER and COOPERATIVE",
        evidence=newest_by_source(item for value in sorted(found) for item in found[value]),
    )
    return replace(member, ran=None), (contradiction,)


def newest_by_source(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return the newest piece of evidence of each source, sorted from oldest to newest."""
    newest = {item.source: item for item in sorted(evidence, key=evidence_key)}
    return tuple(sorted(newest.values(), key=evidence_key))


def evidence_key(item: Evidence) -> tuple[datetime, str, str]:
    """Return a sort key: undated evidence comes first, then dated evidence, oldest first."""
    return when(item.at), item.source, item.detail


def when(at: datetime | None) -> datetime:
    """Return `at` as a sort key; None sorts before every time."""
    return at if at is not None else _LONG_AGO


def _software(
    known: Software | None, joins: Sequence[Joined], names: tuple[str, ...]
) -> Software | None:
    """Return the best known client software: one with name and version first, then the newest.

    `names` is the member's assignor list. It and the protocol type distinguish Kafka Streams and
    Connect from the Java client, whose software name they send.
    """
    found = [known] if known is not None else []
    for join in joins:
        if (told := join.software) is not None:
            key = told.family or family_of(told.name, told.version)
            # The consumers inside Kafka Streams introduce themselves as the Java client, and so do
            # Connect workers.
            if key == "java" and ("stream" in names or join.protocol_type == "connect"):
                key = "streams" if "stream" in names else "connect"
            evidence = newest_by_source(told.evidence or (join.evidence,))
            found.append(replace(told, family=key, evidence=evidence))
    return found[0] if len(found) == 1 else max(found, key=_rank, default=None)


def _timeouts(known: Timeouts | None, joins: Sequence[Joined]) -> Timeouts | None:
    """Return the newest of the timeouts in `known` and `joins`; None if there are none.

    They are fixed when the client is built, like the assignor list.
    """
    found = [known] if known is not None else []
    found += [
        Timeouts(
            session_ms=join.session_timeout_ms,
            rebalance_ms=join.rebalance_timeout_ms,
            held_back_ms=join.held_back_ms,
            evidence=(join.evidence,),
        )
        for join in joins
        if (join.session_timeout_ms, join.rebalance_timeout_ms) != (None, None)
    ]
    if not found:
        return None
    found.sort(key=_by_newest_evidence)
    newest = found[-1]
    said = (newest.session_ms, newest.rebalance_ms)
    agreeing = (told for told in found if (told.session_ms, told.rebalance_ms) == said)
    evidence = newest_by_source(item for told in agreeing for item in told.evidence)
    # The requests that a log of the broker's shows have no such field.
    held_back = next((t.held_back_ms for t in reversed(found) if t.held_back_ms is not None), None)
    return replace(newest, held_back_ms=held_back, evidence=evidence)


def _by_newest_evidence(timeouts: Timeouts) -> tuple[list[tuple[datetime, str, str]], int, int]:
    newest = [evidence_key(item) for item in timeouts.evidence[-1:]]
    return newest, timeouts.session_ms or 0, timeouts.rebalance_ms or 0


def _rank(software: Software) -> tuple[int, datetime, str, str]:
    named = 2 * bool(software.name and software.version) + bool(software.family)
    newest = max((when(item.at) for item in software.evidence), default=_LONG_AGO)
    return named, newest, software.name or "", software.version or ""
