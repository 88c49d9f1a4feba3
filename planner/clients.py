"""Capabilities of client families, and known faults of versions (`Fault`, and the `table` of all),
each answered with yes, no or cannot tell.

What a version can do stands in groups/clients.py. Whether it has a fault is yes or no for an exact
version, which the client or the broker itself reports. The build of a vendor (`7.5.1-ccs`) is any
release of the line that it is built from: it has the faults that only a later line fixes, and of
those that a patch release fixes nothing is known.
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
    """Return the families of which some version supports group.protocol=consumer."""
    return frozenset(k for k, known in families().items() if version_tuple(known.kip848_since))


def stays_eager(key: str | None) -> bool:
    """Return whether no version of this client has a cooperative assignor.

    If only newer versions have one, the member is upgraded during the roll-out: in the first bounce
    (Java, sarama), or while the members that reject mixed lists (librdkafka, kafka-python) are
    stopped.
    """
    return family(key).cooperative() is Tri.NO


def refuses_mixed(key: str | None) -> bool:
    """Return whether this client has a cooperative assignor but rejects mixed lists."""
    return family(key).mixed_list == "refused"


def is_mixed(names: Iterable[str]) -> bool:
    """Return whether the list holds both eager and cooperative assignors."""
    return {Tri.YES, Tri.NO} <= {cooperative(name) for name in names}


def refuted(guess: str, held: Collection[str]) -> bool:
    """Return whether a list that holds these assignors disproves a guessed family.

    It does if the list holds a cooperative assignor and no version of the client has one, or if the
    list is mixed and the client rejects mixed lists.
    """
    if stays_eager(guess):
        return Tri.YES in map(cooperative, held)
    return refuses_mixed(guess) and is_mixed(held)


def assumed(client_id: str, key: str) -> str:
    """Return the value of `--assume-family`; without a client id it is of every unproven member."""
    return f"{client_id}={key}" if client_id else key


@lru_cache(4096)
def cooperative(assignor: str) -> Tri:
    """Return whether `assignor` supports COOPERATIVE; `cannot tell` for an unknown one."""
    return opposite(eager_only(assignor))


def cannot_hold(key: str, version: str | None, assignor: str, elected: str | None) -> bool:
    """Return whether the elected assignor proves that the list of this client, a family and its
    version, lacks `assignor`.

    It does if the client has no cooperative assignor, or rejects mixed lists and an assignor of the
    other protocol is elected.
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
    """Return assignor name → Java class for each custom class that a member's log shows.

    A custom class can have the name of one of Kafka's. A plan's configuration never replaces it by
    Kafka's class of that name.
    """
    known = [member.assignors for member in snapshot.members if member.assignors.classes]
    return {
        name: each
        for one in known
        for name, each in zip(one.list, one.classes, strict=True)
        if custom(name) or assignor_of(each) != name
    }


def runs_cooperative(member: Member) -> bool:
    """Return whether this member's own behaviour proves that its whole list supports COOPERATIVE.

    A client that fixes its protocol when it is built runs the highest one that ALL of its assignors
    support (KIP-429). It proves nothing about another member, which may run an older class of the
    same name.
    """
    return fixes_protocol(member.software) and member.kept_partitions > 0


def stops_at_repeats(family: str | None, software: Software | None) -> bool:
    """Return whether this client may stop at a list that names an assignor twice: Java of 3.1 to
    4.1, and one whose version is not known. Later ones drop the second with a warning (KIP-1161).
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
        """Return the first release of each line that has the fault."""
        return [*map(numbers, [self.since] if isinstance(self.since, str) else self.since)]

    def in_version(self, version: Version) -> Tri:
        """Return whether this release (major, minor, patch), or each of a line's, has the fault."""
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
        """Return whether a broker has the fault; `version` is `4.1.1`, `4.1` (any patch) or `3.9 or
        later`.

        If the version covers releases with and without the fault, the answer is cannot tell.
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
    """A rule that version_faults.yaml declares, documentation included."""

    title: str
    severity: Severity
    reference: str
    applies: str
    summary: str
    why: str
    fix: str


class FaultTable(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document version_faults.yaml."""

    how_to_find_out: dict[str, str]
    conditions: dict[str, str]
    rules: tuple[FaultRule, ...]
    others: tuple[FaultSet, ...]

    @property
    def sets(self) -> tuple[FaultSet, ...]:
        """The faults of all rules."""
        return (*self.rules, *self.others)


def table() -> FaultTable:
    """Return all known faults, and the rules that are declared as data."""
    return load_data("version_faults.yaml", FaultTable, "rebal.planner.rules")


def fault(issue: str) -> Fault:
    """Return the known fault that this issue describes."""
    return next(each for one in table().sets for each in one.faults if each.issue == issue)


def _from(releases: Sequence[Version], version: Version) -> bool:
    """Return whether `version` is one of these releases, a later one of its line, or later than
    all.
    """
    return version >= max(releases) or any(
        version >= each and version[:2] == each[:2] for each in releases
    )


@lru_cache(4096)
def exact_version(text: str | None) -> Version | None:
    """Return a release as (major, minor, patch), a vendor's build as its line (major, minor).

    Of a librdkafka binding, librdkafka's own version counts (`2.16.1-rdkafka-2.16.0`). None if the
    version is not known, or of a vendor that rebal does not know.
    """
    built = apache_version(text or "")
    match = EMBEDDED.search(built) or re.fullmatch(r"v?(\d+(?:\.\d+)*)", built)
    if match is None:
        return None
    return numbers(match[1])[: 2 if built != text and built.count(".") == 1 else None]


@lru_cache(4096)
def numbers(text: str) -> Version:
    """Return `3.0` as (3, 0, 0)."""
    found = tuple(int(number) for number in text.split("."))
    return (*found, 0, 0)[: max(3, len(found))]


def shown(version: Version) -> str:
    """Return (3, 0, 0) as `3.0.0`."""
    return ".".join(map(str, version))
