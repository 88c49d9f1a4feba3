"""Known faults of client and broker versions (groups/data/versions.yaml), in three values.

A fault speaks only where a version is exactly known: a client's own word (its handshake or log), or
what the broker says of itself. A vendor's build (`7.5.1-ccs`) has numbers and fixes of its own and
counts as not known. What the table could not be held against is said by `unchecked_versions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from rebal.groups.model import GroupType, Record, Tri
from rebal.planner.context import CONSUMER, COOPERATIVE, Context, Facts
from rebal.planner.plan import Finding
from rebal.planner.rules.registry import found

BROKER: Final = "broker"
# Faults of brokers that only groups meet that go to KIP-848 or come from it.
_OF_KIP848: Final = ("RB404", "RB410")
_PLAIN: Final = re.compile(r"v?(\d+(?:\.\d+)*)")
_EMBEDDED: Final = re.compile(r"rdkafka-v?(\d+(?:\.\d+)*)")
_OR_LATER: Final = " or later"
# Past every patch release of a line.
_END: Final = 1_000_000
_TITLES: Final = {"java": "Java", "streams": "Streams", "connect": "Connect"}

Version = tuple[int, ...]


class Fault(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known fault; the fields are explained at the top of groups/data/versions.yaml."""

    rule: str
    issue: str
    of: str
    since: str
    fixed: tuple[str, ...] | Literal["open", "unknown"]
    when: Literal["always", "racks", "static", "several-topics"]
    what: str
    source: str

    def in_version(self, version: Version) -> Tri:
        """Is the fault in this release (major, minor, patch)?"""
        first = _numbers(self.since)
        if version < first:
            return Tri.NO
        if self.fixed == "open" or (self.fixed == "unknown" and version == first):
            return Tri.YES
        if isinstance(self.fixed, str):
            return Tri.CANNOT_TELL
        fixes = [_numbers(text) for text in self.fixed]
        free = version >= max(fixes) or any(
            version >= fix and version[:2] == fix[:2] for fix in fixes
        )
        return Tri.NO if free else Tri.YES


class _Faults(Record, frozen=True, kw_only=True):
    faults: tuple[Fault, ...]


@cache
def faults() -> tuple[Fault, ...]:
    """All known faults, in the order of the table."""
    import yaml

    text = files("rebal.groups.data").joinpath("versions.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), _Faults).faults


@lru_cache(4096)
def exact_version(text: str | None) -> Version | None:
    """A client's release as (major, minor, patch); None for a vendor's build and for no version.

    Of a librdkafka binding it is librdkafka's own that counts (`2.16.1-rdkafka-2.16.0`).
    """
    match = _EMBEDDED.search(text or "") or _PLAIN.fullmatch(text or "")
    return _numbers(match[1]) if match else None


def in_broker(fault: Fault, version: str | None) -> Tri:
    """Is the fault in a broker that says `4.1.1`, `4.1` (any patch of it) or `3.9 or later`?"""
    text = version or ""
    if text.endswith(_OR_LATER):
        low = exact_version(text.removesuffix(_OR_LATER))
        high: Version = (_END, _END, _END)
    else:
        low = exact_version(text)
        high = (*low[:2], _END) if low and text.count(".") == 1 else low or ()
    if low is None:
        return Tri.CANNOT_TELL
    edges = [fault.since, *(() if isinstance(fault.fixed, str) else fault.fixed)]
    between = [edge for edge in map(_numbers, edges) if low <= edge <= high]
    said = {fault.in_version(version) for version in (low, high, *between)}
    return said.pop() if len(said) == 1 else Tri.CANNOT_TELL


def client_faults(
    context: Context,
    rule: str,
    members: Iterable[Facts] | None = None,
    *,
    family: str | None = None,
) -> Iterator[Finding]:
    """One finding for the members whose exactly known version has faults of this rule, or none.

    `members` are all if not given; `family` is what they are where the group as a whole tells it
    (Streams and Connect call themselves Java). A version that is not known gives no finding.
    """
    known = [fault for fault in faults() if fault.rule == rule and _holds(context, fault)]
    hit: list[Facts] = []
    there: dict[Fault, None] = {}
    versions: list[Version] = []
    faulty: dict[tuple[str | None, Version], list[Fault]] = {}
    for facts in context.members if members is None else members:
        version = _version(facts, family)
        of = family or facts.family
        if version is None:
            continue
        # Members of one release have the same faults, and a group has few releases.
        if (of, version) not in faulty:
            faulty[of, version] = [
                fault for fault in known if fault.of == of and fault.in_version(version) is Tri.YES
            ]
        mine = faulty[of, version]
        if mine:
            hit.append(facts)
            versions.append(version)
            there |= dict.fromkeys(mine)
    if hit:
        shown = ", ".join(map(_shown, sorted(set(versions))))
        named = family or str(hit[0].family)
        title = _TITLES.get(named, named)
        yield found(
            f"{context.named(hit)} ({title} {shown}): {_listed(there)}.",
            members=hit,
            fix=_upgrade(title, there, lambda version: max(versions) < version),
        )


def broker_faults(context: Context, rule: str) -> Iterator[Finding]:
    """One finding for the faults of this rule that the broker's version has, or none."""
    version = context.snapshot.cluster.version
    there = [
        fault
        for fault in faults()
        if (fault.rule, fault.of) == (rule, BROKER)
        and _holds(context, fault)
        and in_broker(fault, version) is Tri.YES
    ]
    if there:
        yield found(
            f"the broker ({version}): {_listed(there)}.",
            fix=_upgrade("the brokers", there, lambda _: True),
        )


def cooperates(context: Context) -> bool:
    """Do faults of cooperative clients matter: does a plan lead there, with something left to do?

    A group that runs well, cooperative or not, is not bothered with its clients' change logs.
    """
    return (
        context.planning
        and context.classic
        and context.goal == COOPERATIVE
        and len(context.settled) < len(context.members)
    )


def unchecked_versions(context: Context) -> tuple[str, ...]:
    """What the table of faults could not be held against, half a sentence each, for a plan."""
    made = []
    open_ = [facts for facts in context.members if _version(facts, None) is None]
    if open_:
        one = len(open_) == 1
        made.append(
            f"known faults of the client versions of {context.named(open_)}: "
            f"{'its version is' if one else 'their versions are'} not exactly known"
        )
    tabled = {fault.of for fault in faults()}
    others = sorted({f.family for f in context.members if f.family and f.family not in tabled})
    if others:
        made.append(f"known faults of {', '.join(others)}: there is no table of them")
    version = context.snapshot.cluster.version
    kip848 = context.goal == CONSUMER or context.group.type is GroupType.CONSUMER
    if version is None:
        made.append("known faults of the broker's version: it is not known")
    elif any(
        isinstance(fault.fixed, tuple)
        and _holds(context, fault)
        and in_broker(fault, version) is Tri.CANNOT_TELL
        for fault in faults()
        if fault.of == BROKER and (fault.rule in _OF_KIP848) is kip848
    ):
        made.append(f"known faults of the broker's patch release: it says {version} only")
    return tuple(made)


@lru_cache(4096)
def _numbers(text: str) -> Version:
    numbers = tuple(int(number) for number in text.split("."))
    return (*numbers, 0, 0)[: max(3, len(numbers))]


def _version(facts: Facts, family: str | None) -> Version | None:
    known = facts.family_proven or family is not None
    return exact_version(facts.version) if known else None


def _holds(context: Context, fault: Fault) -> bool:
    """Does the group have what the fault needs?"""
    members = context.snapshot.members
    if fault.when == "racks":
        return any(m.rack or (m.subscription and m.subscription.rack_id) for m in members)
    if fault.when == "static":
        return any(member.instance_id is not None for member in members)
    if fault.when == "several-topics":
        topics = {topic for m in members for topic in (*m.assignment, *m.subscribed_topics)}
        sent = {topic for m in members if m.subscription for topic in m.subscription.topics}
        return len(topics | sent) > 1
    return True


def _listed(there: Iterable[Fault]) -> str:
    return "; ".join(f"{fault.what} ({fault.issue}{_until(fault)})" for fault in there)


def _until(fault: Fault) -> str:
    if fault.fixed == "open":
        return ", no release is free of it"
    return "" if isinstance(fault.fixed, str) else f", fixed in {' and '.join(fault.fixed)}"


def _upgrade(what: str, there: Iterable[Fault], newer: Callable[[Version], bool]) -> str:
    """The first release that is free of all of them."""
    listed = list(there)
    fixes = {_numbers(text) for f in listed if isinstance(f.fixed, tuple) for text in f.fixed}
    free = [
        fix
        for fix in sorted(fixes)
        if newer(fix) and all(fault.in_version(fix) is Tri.NO for fault in listed)
    ]
    return f"Upgrade {what} to {_shown(free[0])} or later." if free else ""


def _shown(version: Version) -> str:
    return ".".join(map(str, version))
