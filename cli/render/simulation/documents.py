"""Documents of simulations and rehearsals, one or several side by side: `rebal.simulate/1` and
`rebal.rehearsal/1`.
"""

from collections.abc import Sequence
from datetime import datetime

from rebal.groups.model import Record
from rebal.planner.rehearsal.outcome import Distribution, Rehearsal, endangered
from rebal.planner.rehearsal.scene import Used
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import Simulation
from rebal.planner.verdict import BLOCKED, SAFE, UNPROVEN, worst_code


class RunDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One rehearsal: of the plan, of the group as it runs now, or of another protocol (`name`).

    `distribution` is over all seeds, `rehearsal` is the run of the first one.
    """

    name: str
    rehearsal: Rehearsal
    distribution: Distribution | None = None


class RehearsalDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The body of `rebal.rehearsal/1`.

    `script` is the ready script's name or the script's file, `plan` the plan's file (None: none).
    `assumes` is what was taken for granted where the evidence shows nothing, a sentence each;
    `parameters` are the times that were used. `partitions` counts what members can own, in the
    `unit` of the rehearsals.
    """

    group_id: str
    captured_at: datetime
    members: int
    partitions: int
    plan: str | None = None
    script: str | None = None
    about: str = ""
    seed: int = 0
    parameters: tuple[Used, ...] = ()
    assumes: tuple[str, ...] = ()
    runs: tuple[RunDocument, ...] = ()
    unit: str = "partition"


def code_of(runs: Sequence[RunDocument], *, exit_zero: bool) -> int:
    """Return the exit code: 3 with a danger in any run, 4 where a group does not come to rest or a
    sample has none of some kind of restart.
    """
    if exit_zero:
        return SAFE
    return worst_code(map(_code, runs))


def _code(one: RunDocument) -> int:
    spread = one.distribution
    if endangered(one.rehearsal) or (spread is not None and spread.endangered):
        return BLOCKED
    if not one.rehearsal.at_rest or (spread is not None and spread.restless):
        return UNPROVEN
    return SAFE


class SimulationsDocument(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The body of `rebal.simulate/1` where several assignors were simulated."""

    group_id: str
    captured_at: datetime
    assignor_now: str | None
    changes: Changes
    simulations: list[Simulation]
