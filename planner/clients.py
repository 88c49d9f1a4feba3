"""Capabilities of client families (java, librdkafka, …), and known faults of released versions.

groups/clients.py holds the capabilities of each version; version_faults.yaml holds the faults of
clients and brokers (`Fault`; `table` returns all of them).

`Tri` answers are yes, no or cannot tell. Whether a version has a fault is yes or no only for an
exact version, which the client or the broker itself reports. A vendor's build (`7.5.1-ccs`) can be
any patch release of the Kafka line (3.5) that it is built from. Its answer is yes or no only if it
is the same for all these patch releases, else cannot tell.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal

from rebal.groups.clients import (
    EMBEDDED,
    apache_version,
    assignor_of,
    assignors,
    eager_only,
    families,
    family,
    fixes_protocol,
    older,
    version_tuple,
)
from rebal.groups.data import load_data
from rebal.groups.model import GroupSnapshot, Member, Record, Software, Tri
from rebal.planner.plan import Severity
from rebal.planner.verdict import opposite


@lru_cache(1)
def speak_kip848() -> frozenset[str]:
    """Return the client families of which some version supports group.protocol=consumer."""
    return frozenset(k for k, known in families().items() if version_tuple(known.kip848_since))


def stays_eager(key: str | None) -> bool:
    """Return whether no version of the client family `key` has a cooperative assignor.

    False for a family whose newer versions have one, because the roll-out upgrades old clients:
    java and sarama in the first bounce, librdkafka and kafka-python in the step that stops them.
    False for an unknown family (None).
    """
    return family(key).cooperative() is Tri.NO


def refuses_mixed(key: str | None) -> bool:
    """Return whether this client family has a cooperative assignor but rejects mixed lists.

    A mixed list holds eager and cooperative assignors; such a client does not start with it.
    """
    return family(key).mixed_list == "refused"


def is_mixed(names: Iterable[str]) -> bool:
    """Return whether the list holds both eager and cooperative assignors."""
    return {Tri.YES, Tri.NO} <= {cooperative(name) for name in names}


def refuted(guess: str, held: Collection[str]) -> bool:
    """Return whether the assignors in a member's list disprove its guessed client family.

    `held` are the assignors that the list is proven to hold. They disprove the guess if one is
    cooperative and no version of the family has a cooperative assignor, or if they mix eager and
    cooperative and the family rejects mixed lists.
    """
    if stays_eager(guess):
        return Tri.YES in map(cooperative, held)
    return refuses_mixed(guess) and is_mixed(held)


def assume_family_value(client_id: str, key: str) -> str:
    """Return the value of `--assume-family` that states family `key` for a client id.

    With an empty client id it states the family of every member whose family is not proven.
    """
    return f"{client_id}={key}" if client_id else key


@lru_cache(4096)
def cooperative(assignor: str) -> Tri:
    """Return whether `assignor` supports COOPERATIVE; `cannot tell` for an unknown one."""
    return opposite(eager_only(assignor))


def cannot_hold(key: str, version: str | None, assignor: str, elected: str | None) -> bool:
    """Return whether a client's assignor list is proven to lack `assignor`.

    `key` is the client family and `version` the client's version. The list lacks a cooperative
    assignor if this version has none. If the client rejects mixed lists, its list also lacks every
    cooperative assignor while an eager one is elected, and every eager one while a cooperative one
    is.
    """
    other = cooperative(assignor)
    can = family(key)
    if other is Tri.YES and can.cooperative(version) is Tri.NO:
        return True
    if elected is None or assignor == elected or can.mixed is not Tri.NO:
        return False
    now = cooperative(elected)
    return Tri.CANNOT_TELL not in (now, other) and now is not other


def custom(assignor: str) -> bool:
    """Return whether no known client brings an assignor of this name."""
    return assignor not in assignors()


def classes_of(snapshot: GroupSnapshot) -> dict[str, str]:
    """Return assignor name → Java class for each custom class that a member's client log shows.

    A custom class with the name of one of Kafka's assignors is included: a plan's configuration
    then names this class, never Kafka's own class of that name.
    """
    known = [member.assignors for member in snapshot.members if member.assignors.classes]
    return {
        name: each
        for one in known
        for name, each in zip(one.list, one.classes, strict=True)
        if custom(name) or assignor_of(each) != name
    }


def runs_cooperative(member: Member) -> bool:
    """Return whether this member's behaviour proves that its whole list supports COOPERATIVE.

    The proof is that it kept partitions when it joined, and that its client chooses the protocol
    when it is built: the highest one that ALL assignors of its list support (KIP-429). This proves
    nothing about another member, which may run an older class of the same name.
    """
    return fixes_protocol(member.software) and member.kept_partitions > 0


def stops_at_repeats(family: str | None, software: Software | None) -> bool:
    """Return whether this client may fail to start with a list that names an assignor twice.

    Java clients from 3.1 to 4.1 fail, and one of unknown version may. Later versions drop the
    second entry with a warning (KIP-1161).
    """
    if family != "java" or software is None:
        return family == "java"
    return older(software, "4.2") is not Tri.NO and older(software, "3.1") is not Tri.YES


_OR_LATER: Final = " or later"
# Past every patch release of a line.
_END: Final = 1_000_000

Version = tuple[int, ...]


class Fault(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known fault; planner/rules/version_faults.yaml explains the fields."""

    issue: str
    since: str | tuple[str, ...]
    fixed: tuple[str, ...] | Literal["open", "unknown"]
    requires: Literal["always", "racks", "static", "several-topics", "regex", "upgrade"] = "always"
    effect: str
    source: str

    @property
    def first(self) -> list[Version]:
        """Return the releases with which the fault began, one for each release line that has it."""
        return [*map(numbers, [self.since] if isinstance(self.since, str) else self.since)]

    def in_version(self, version: Version) -> Tri:
        """Return whether a release (major, minor, patch) has the fault.

        For a line (major, minor), return yes or no only if it is the same for all its patch
        releases.
        """
        if len(version) == 2:
            return self._between((*version, 0), (*version, _END))
        if not _from(self.first, version):
            return Tri.NO
        if self.fixed == "open" or (self.fixed == "unknown" and version in self.first):
            return Tri.YES
        if isinstance(self.fixed, str):
            return Tri.CANNOT_TELL
        return Tri.NO if _from([*map(numbers, self.fixed)], version) else Tri.YES

    def in_broker(self, version: str | None) -> Tri:
        """Return whether a broker of this version has the fault.

        `version` is `4.1.1`, `4.1` (any patch release) or `3.9 or later`. If it covers releases
        with and without the fault, or is None, the answer is cannot tell.
        """
        text = version or ""
        low = exact_version(text.removesuffix(_OR_LATER))
        if low is None:
            return Tri.CANNOT_TELL
        if text.endswith(_OR_LATER):
            return self._between(low, (_END, _END, _END))
        return self.in_version(low[:2] if text.count(".") == 1 else low)

    def _between(self, low: Version, high: Version) -> Tri:
        fixes = () if isinstance(self.fixed, str) else self.fixed
        between = [edge for edge in [*self.first, *map(numbers, fixes)] if low <= edge <= high]
        answers = {self.in_version(each) for each in (low, high, *between)}
        return answers.pop() if len(answers) == 1 else Tri.CANNOT_TELL


class FaultSet(Record, frozen=True, kw_only=True):
    """The known faults that one rule reports; version_faults.yaml explains the fields."""

    id: str
    software: str
    faults: tuple[Fault, ...]
    kip848: bool = False
    bounded: bool = False
    workaround: str = ""


class FaultRule(FaultSet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule that version_faults.yaml declares: its faults, and the rule's documentation."""

    title: str
    severity: Severity
    reference: str
    applies: str
    summary: str
    why: str
    fix: str


class FaultTable(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document version_faults.yaml: known bugs of client and broker versions."""

    how_to_find_out: dict[str, str]
    conditions: dict[str, str]
    rules: tuple[FaultRule, ...]
    others: tuple[FaultSet, ...]

    @property
    def sets(self) -> tuple[FaultSet, ...]:
        """The bugs that each rule reports: the rules defined as data, then those in Python."""
        return (*self.rules, *self.others)


def table() -> FaultTable:
    """Return all known faults, and the rules that are declared as data."""
    return load_data("version_faults.yaml", FaultTable, "rebal.planner.rules")


def fault(issue: str) -> Fault:
    """Return the known fault with the issue id `issue`, such as KAFKA-20254."""
    return next(each for one in table().sets for each in one.faults if each.issue == issue)


def _from(releases: Sequence[Version], version: Version) -> bool:
    """Return whether `version` has a change that began with `releases`, one in each release line.

    It has the change if it is one of them, a later release of the same line, or later than all of
    them.
    """
    return version >= max(releases) or any(
        version >= each and version[:2] == each[:2] for each in releases
    )


@lru_cache(4096)
def exact_version(text: str | None) -> Version | None:
    """Return a release as (major, minor, patch), or a vendor's build as its line (major, minor).

    For a librdkafka binding it is librdkafka's own version (`2.16.1-rdkafka-2.16.0`). None if
    `text` is None, or the version of a vendor that rebal does not know.
    """
    built = apache_version(text or "")
    match = EMBEDDED.search(built) or re.fullmatch(r"v?(\d+(?:\.\d+)*)", built)
    if match is None:
        return None
    return numbers(match[1])[: 2 if built != text and built.count(".") == 1 else None]


@lru_cache(4096)
def numbers(text: str) -> Version:
    """Return a version's text as at least three numbers: `3.0` as (3, 0, 0)."""
    found = tuple(int(number) for number in text.split("."))
    return (*found, 0, 0)[: max(3, len(found))]


def shown(version: Version) -> str:
    """Return a version's numbers as text: (3, 0, 0) as `3.0.0`."""
    return ".".join(map(str, version))
