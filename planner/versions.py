"""Known faults of one version: `Fault`, whether a client or broker version has it, and the `table`.

An answer is yes or no for an exact version, which the client or the broker itself reports. The
build of a vendor (`7.5.1-ccs`) is any release of the line that it is built from: it has the faults
that only a later line fixes, and of those that a patch release fixes nothing is known.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from rebal.groups.clients import EMBEDDED, apache_version
from rebal.groups.data import load_data
from rebal.groups.model import Record, Tri
from rebal.planner.plan import Severity

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
