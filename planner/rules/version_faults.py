"""The rules that differ only in data: known faults of client and broker versions.

version_faults.yaml declares them, with their documentation. A fault is reported only if an exact
version, or a bound from a member's bytes, proves it; `unchecked_versions` lists what could not be
checked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from textwrap import fill
from types import MappingProxyType
from typing import Final

from rebal.groups.model import GroupType, Tri
from rebal.planner.clients import (
    Fault,
    FaultSet,
    Version,
    exact_version,
    numbers,
    shown,
    table,
)
from rebal.planner.context import CONSUMER, STREAMS, Context, Facts
from rebal.planner.plan import Finding
from rebal.planner.rules.registry import (
    Rule,
    Trait,
    found,
    register,
    streams_program,
    to_consumer,
    to_cooperative,
    to_or_from_consumer,
    to_or_from_cooperative,
    upgrade,
)
from rebal.planner.verdict import reasons

BROKER: Final = "broker"
_TITLES: Final = {"java": "Java", "streams": "Streams", "connect": "Connect"}
_CONDITIONS: Final[Mapping[str, Callable[[Context], bool]]] = MappingProxyType(
    {
        "to-cooperative": to_cooperative,
        "to-or-from-cooperative": to_or_from_cooperative,
        "classic-plan": lambda context: context.planning and context.classic,
        "to-consumer": to_consumer,
        "to-or-from-consumer": to_or_from_consumer,
        "streams": streams_program,
    }
)


def version_findings(context: Context, known: FaultSet) -> Iterator[Finding]:
    """Yield at most one finding for the members, or the brokers, with faults of this set.

    A version that is not exactly known gives no finding. If the set is `bounded`, one more finding
    for each fault names the members whose bytes prove that they have it.
    """
    if known.software == BROKER:
        yield from _broker_finding(context, known)
        return
    yield from _client_finding(context, known)
    if known.bounded:
        yield from _bounded_findings(context, known)


def unchecked_versions(context: Context) -> tuple[str, ...]:
    """Return the versions that could not be compared with the known faults.

    Each is a clause for a plan's list of unchecked things.
    """
    # Of a vendor's build only the line is known.
    open_ = [facts for facts in context.members if len(_version(facts, None) or ()) < 3]
    families = {facts.family for facts in context.members if facts.family}
    others = sorted(families - {one.software for one in table().sets})
    version, met = context.snapshot.cluster.version, _met(context)
    kip848 = context.goal in (CONSUMER, STREAMS) or context.group.type is GroupType.CONSUMER
    patch = version is not None and any(
        isinstance(fault.fixed, tuple)
        and met[fault.requires]
        and fault.in_broker(version) is Tri.CANNOT_TELL
        for one in table().sets
        if one.software == BROKER and one.kip848 is kip848
        for fault in one.faults
    )
    return reasons(
        (
            open_,
            f"known faults of the client {'version' if len(open_) == 1 else 'versions'} of "
            f"{context.named(open_)}: no exact version is known",
        ),
        (others, f"known faults of {', '.join(others)}: rebal has no list of them"),
        (version is None, "known faults of the broker version: the version is unknown"),
        (patch, f"known faults of the broker's patch release: only {version} is known"),
    )


def _client_finding(context: Context, known: FaultSet) -> Iterator[Finding]:
    # Streams and Connect call themselves Java: the group tells them apart.
    family = known.software if known.software in ("streams", "connect") else None
    met = _met(context)
    faults = [fault for fault in known.faults if met[fault.requires]]
    versions = [
        (facts, version)
        for facts in context.members
        if (version := _version(facts, family)) is not None
        and (family is not None or facts.family == known.software)
    ]
    # Members of one release have the same faults, and a group has few releases.
    faulty = {
        version: [fault for fault in faults if fault.in_version(version) is Tri.YES]
        for version in dict.fromkeys(version for _, version in versions)
    }
    hit = [facts for facts, version in versions if faulty[version]]
    if hit:
        there = dict.fromkeys(fault for found_in in faulty.values() for fault in found_in)
        newest = max(version for version in faulty if faulty[version])
        title = _TITLES.get(known.software, known.software)
        releases = ", ".join(shown(version) for version in sorted(faulty) if faulty[version])
        yield found(
            f"{context.named(hit)} ({title} {releases}) {'has' if len(hit) == 1 else 'have'} known "
            f"faults: {_listed(there)}.",
            members=hit,
            fix=_upgrade(title, there, known, lambda version: newest < version),
        )


def _broker_finding(context: Context, known: FaultSet) -> Iterator[Finding]:
    version, met = context.snapshot.cluster.version, _met(context)
    there = [
        fault
        for fault in known.faults
        if met[fault.requires] and fault.in_broker(version) is Tri.YES
    ]
    if there:
        yield found(
            f"the brokers ({version}) have known faults: {_listed(there)}.",
            fix=_upgrade("the brokers", there, known, lambda _: True),
        )


def _bounded_findings(context: Context, known: FaultSet) -> Iterator[Finding]:
    title = _TITLES.get(known.software, known.software)
    for fault in known.faults:
        if isinstance(fault.fixed, str):
            continue
        limit = fault.fixed[-1]
        bounded = [
            facts
            for facts in context.members
            if facts.version is None
            and facts.older_than(limit) is Tri.YES
            and facts.older_than(shown(min(fault.first))) is Tri.NO
        ]
        if bounded:
            yield found(
                f"{context.named(bounded)} ({title} below {limit}, by the bytes sent) "
                f"{'has' if len(bounded) == 1 else 'have'} a known fault: {fault.effect} "
                f"({fault.issue}).",
                members=bounded,
                fix=f"Upgrade {title} to {limit} or later.",
            )


def _version(facts: Facts, family: str | None) -> Version | None:
    return exact_version(facts.version) if facts.family_proven or family is not None else None


@lru_cache(1)
def _met(context: Context) -> dict[str, bool]:
    """Return condition → whether the group meets it, for the conditions that faults may require."""
    members = context.snapshot.members
    sent = [member.subscription for member in members if member.subscription]
    topics = {topic for m in members for topic in (*m.assignment, *m.subscribed_topics)}
    return {
        "always": True,
        "racks": any(m.rack for m in members) or any(one.rack_id for one in sent),
        "static": any(member.instance_id is not None for member in members),
        "regex": any(member.subscribed_regex for member in members),
        "upgrade": upgrade(context),
        "several-topics": len(topics.union(*(one.topics for one in sent))) > 1,
    }


def _listed(there: Iterable[Fault]) -> str:
    return "; ".join(f"{fault.effect} ({fault.issue}{_until(fault)})" for fault in there)


def _until(fault: Fault) -> str:
    if isinstance(fault.fixed, str):
        return ", not fixed in any release" if fault.fixed == "open" else ""
    *others, last = fault.fixed
    return f", fixed in {', '.join(others)} and {last}" if others else f", fixed in {last}"


def _upgrade(
    what: str, there: Iterable[Fault], known: FaultSet, newer: Callable[[Version], bool]
) -> str:
    """Return the advice to upgrade to the first release without these faults.

    If no release is known to be free of them, return the workaround.
    """
    listed = list(there)
    fixes = {numbers(text) for f in listed if isinstance(f.fixed, tuple) for text in f.fixed}
    free = [
        fix
        for fix in sorted(fixes)
        if newer(fix) and all(fault.in_version(fix) is Tri.NO for fault in listed)
    ]
    return f"Upgrade {what} to {shown(free[0])} or later." if free else known.workaround


for _one in table().rules:
    register(
        Rule(
            id=_one.id,
            severity=_one.severity,
            title=_one.title,
            reference=_one.reference,
            doc="\n\n".join(
                fill(text, 96, break_long_words=False, break_on_hyphens=False)
                for text in (
                    _one.summary,
                    f"Why it matters: {_one.why}",
                    f"How to find out: {table().how_to_find_out[_one.software]}",
                    f"How to fix it: {_one.fix}",
                    table().conditions[_one.applies],
                )
            ),
            condition=partial(version_findings, known=_one),
            applies=(_CONDITIONS[_one.applies],),
            traits=frozenset({Trait.REVIEW}),
        )
    )
