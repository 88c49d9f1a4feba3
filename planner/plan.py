"""A plan is a file: steps with their gates, findings, what was not checked, and the baseline.

`Plan` is what the routes return and what the views and `--out` print; `Finding` is what a rule
returns. Both are records of groups/model.py's kind, so that they read and write as documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from rebal.groups.model import Evidence, GroupSnapshot, RebalanceProtocol, Record, Tri


class Severity(StrEnum):
    """block: do not go on; warn: know this before; ask: a person must look at application code."""

    BLOCK = "block"
    WARN = "warn"
    ASK = "ask"


class Finding(Record, frozen=True, kw_only=True):
    """What one rule says about one group. `result` is yes (fires) or cannot tell, never no.

    `members` are member ids. `before_step` is the number of the step that the finding gates
    (None: it concerns the group as it runs, or every step). `fix` is paste-ready text.
    """

    rule: str
    severity: Severity
    result: Tri = Tri.YES
    message: str
    members: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    reference: str = ""
    before_step: int | None = None
    ignored: str | None = None


class Gate(Record, frozen=True, kw_only=True):
    """What must be true on the live group before the next step: a command and the state it shows.

    `needs` are the facts that decide it, one sentence each; `holds` is today's answer.
    """

    command: str
    shows: str
    needs: tuple[str, ...] = ()
    holds: Tri = Tri.CANNOT_TELL


class Setting(Record, frozen=True, kw_only=True):
    """Exact configuration text for one client family: what to paste, and in which format."""

    family: str
    format: str
    text: str


class Cost(Record, frozen=True, kw_only=True):
    """What a step costs, foretold.

    `partitions_stopped` is the sum over all rebalances of the partitions that stop at each;
    `partitions_moved` counts changes of owner.
    """

    rebalances: int
    partitions_stopped: int
    partitions_moved: int
    text: str = ""


class Step(Record, frozen=True, kw_only=True):
    """One rolling restart (or cut-over). `exit_code` is what the plan exits with if it is next.

    `to_do` and `done` are member ids; `unknown` are those of which it cannot be told.
    """

    number: int
    title: str
    how: str
    precondition: str
    precondition_holds: Tri
    settings: tuple[Setting, ...] = ()
    target_list: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    gate: Gate
    roll_back: str
    cost: Cost | None = None
    exit_code: int = 0


class Plan(Record, frozen=True, kw_only=True):
    """The way of one group to its target. `next_step` is None when nothing is left to do.

    `route` names the module that made it; `verdict` is one sentence; `exit_code` is that of the
    next step (0 safe or done, 3 blocked, 4 cannot be proven yet).
    """

    group_id: str
    target: str
    route: str
    verdict: str
    runs: RebalanceProtocol
    steps: tuple[Step, ...] = ()
    next_step: int | None = None
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    assumptions: Mapping[str, str] = {}
    expected_members: int | None = None
    made_at: datetime
    baseline: GroupSnapshot
    exit_code: int = 0
