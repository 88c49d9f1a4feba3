"""One group's snapshot with everything that `rebal inspect` says of it, before it is printed."""

from __future__ import annotations

from collections.abc import Mapping

from rebal.groups.classes import borrowed_names
from rebal.groups.model import Evidence, GroupSnapshot, RebalanceProtocol, Record
from rebal.groups.protocol import (
    CommonAssignors,
    common_assignors,
    group_protocol,
    member_protocol,
)
from rebal.planner.plan import Finding
from rebal.planner.rules import evaluate


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


def make_report(snapshot: GroupSnapshot) -> Report:
    """`snapshot`, judged as it stands: what it runs, what is common, what the rules find."""
    runs = group_protocol(snapshot)
    borrowed = borrowed_names(snapshot)
    return Report(
        snapshot=snapshot,
        runs=runs.value,
        why=runs.why,
        evidence=runs.evidence,
        member_runs={
            member.member_id: member_protocol(member, snapshot, borrowed).value
            for member in snapshot.members
        },
        common=common_assignors(snapshot),
        findings=evaluate(snapshot),
    )
