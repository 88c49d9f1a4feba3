"""Known faults of one version: `Fault`, and whether a client or broker version has it.

An answer is yes or no only for an exact version, which the client or the broker itself reports. A
vendor's build (`7.5.1-ccs`) has its own numbers and fixes and counts as unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from rebal.groups.model import Record, Tri

_PLAIN: Final = re.compile(r"v?(\d+(?:\.\d+)*)")
_EMBEDDED: Final = re.compile(r"rdkafka-v?(\d+(?:\.\d+)*)")
_OR_LATER: Final = " or later"
# Past every patch release of a line.
_END: Final = 1_000_000

Version = tuple[int, ...]


class Fault(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known fault; planner/rules/version_faults.yaml explains the fields."""

    issue: str
    since: str
    fixed: tuple[str, ...] | Literal["open", "unknown"]
    requires: Literal["always", "racks", "static", "several-topics"] = "always"
    effect: str
    source: str

    def in_version(self, version: Version) -> Tri:
        """Return whether this release (major, minor, patch) has the fault."""
        first = numbers(self.since)
        if version < first:
            return Tri.NO
        if self.fixed == "open" or (self.fixed == "unknown" and version == first):
            return Tri.YES
        if isinstance(self.fixed, str):
            return Tri.CANNOT_TELL
        fixes = [numbers(text) for text in self.fixed]
        free = version >= max(fixes) or any(
            version >= fix and version[:2] == fix[:2] for fix in fixes
        )
        return Tri.NO if free else Tri.YES

    def in_broker(self, version: str | None) -> Tri:
        """Return whether a broker has the fault; `version` is `4.1.1`, `4.1` (any patch) or `3.9 or
        later`.

        If the version covers releases with and without the fault, the answer is cannot tell.
        """
        text = version or ""
        if text.endswith(_OR_LATER):
            low = exact_version(text.removesuffix(_OR_LATER))
            high: Version = (_END, _END, _END)
        else:
            low = exact_version(text)
            high = (*low[:2], _END) if low and text.count(".") == 1 else low or ()
        if low is None:
            return Tri.CANNOT_TELL
        edges = [self.since, *(() if isinstance(self.fixed, str) else self.fixed)]
        between = [edge for edge in map(numbers, edges) if low <= edge <= high]
        answers = {self.in_version(each) for each in (low, high, *between)}
        return answers.pop() if len(answers) == 1 else Tri.CANNOT_TELL


@lru_cache(4096)
def exact_version(text: str | None) -> Version | None:
    """Return a client's release as (major, minor, patch); None for a vendor's build.

    Of a librdkafka binding, librdkafka's own version counts (`2.16.1-rdkafka-2.16.0`).
    """
    match = _EMBEDDED.search(text or "") or _PLAIN.fullmatch(text or "")
    return numbers(match[1]) if match else None


@lru_cache(4096)
def numbers(text: str) -> Version:
    """Return `3.0` as (3, 0, 0)."""
    found = tuple(int(number) for number in text.split("."))
    return (*found, 0, 0)[: max(3, len(found))]


def shown(version: Version) -> str:
    """Return (3, 0, 0) as `3.0.0`."""
    return ".".join(map(str, version))
