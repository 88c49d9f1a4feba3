"""One group as `rebal inspect` judges it, before it is printed."""

from collections.abc import Mapping

from rebal.groups.model import Evidence, GroupSnapshot, RebalanceProtocol, Record
from rebal.groups.protocol import (
    CommonAssignors,
    borrowed_names,
    common_assignors,
    group_protocol,
    member_protocol,
)
from rebal.planner.commands import Given
from rebal.planner.context import Context
from rebal.planner.plan import Finding
from rebal.planner.rules import evaluate
from rebal.planner.verdict import code_as_it_runs


class Report(Record, frozen=True, kw_only=True):
    """A group with its rebalance protocol, common assignors and findings.

    `runs` is the group's rebalance protocol, `why` is the reason for it, and `evidence` proves it.
    `of_each` is True if `why` is the reason for each single member too. `member_runs` is member id
    → protocol.
    """

    snapshot: GroupSnapshot
    runs: RebalanceProtocol
    why: str = ""
    of_each: bool = False
    evidence: tuple[Evidence, ...] = ()
    member_runs: Mapping[str, RebalanceProtocol] = {}
    common: CommonAssignors = CommonAssignors()
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code: 3 if a finding blocks the group as it runs now, 4 if it is Dead, else 0.

        An urgent finding that is not proven gives 4 too.
        """
        return code_as_it_runs(self.findings, self.snapshot.group.state)


def make_report(snapshot: GroupSnapshot, given: Given | None = None) -> Report:
    """Return the report on a group: its protocol, common assignors and findings.

    The commands of the findings repeat the options in `given`.
    """
    runs = group_protocol(snapshot)
    borrowed = borrowed_names(snapshot)
    members = {
        member.member_id: member_protocol(member, snapshot, borrowed) for member in snapshot.members
    }
    return Report(
        snapshot=snapshot,
        runs=runs.value,
        why=runs.why,
        of_each=all(answer.why == runs.why for answer in members.values()),
        evidence=runs.evidence,
        member_runs={member_id: answer.value for member_id, answer in members.items()},
        common=common_assignors(snapshot),
        findings=evaluate(Context(snapshot, given=given)),
    )
