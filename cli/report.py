"""One group's snapshot with everything that `rebal inspect` says of it, before it is printed."""

from __future__ import annotations

from collections.abc import Mapping

from rebal.groups.model import Evidence, GroupSnapshot, RebalanceProtocol, Record
from rebal.planner.plan import Finding


class CommonAssignors(Record, frozen=True, kw_only=True):
    """Assignors that every member's list holds, and those that some member's list lacks.

    `source` is where it is known from: the sources' names, None where nothing is known.
    """

    supported: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    source: str | None = None


class Report(Record, frozen=True, kw_only=True):
    """What is known of one group and what follows from it; `member_runs` is by member id.

    `why` is one sentence for `runs`; `evidence` is what `runs` follows from.
    """

    snapshot: GroupSnapshot
    runs: RebalanceProtocol
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    member_runs: Mapping[str, RebalanceProtocol] = {}
    common: CommonAssignors = CommonAssignors()
    findings: tuple[Finding, ...] = ()
