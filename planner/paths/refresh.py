"""The step that has the coordinator learn every list again (RB113).

A coordinator that loads a group remembers only the elected assignor of every list, and rejects a
member that is restarted with another assignor alone. How the lists come back depends on the members
(planner/admission/advice.py, `cure_of`): a dynamic member's restart with its CURRENT list makes all
running members join again; static members' restarts do not, and show their own lists only.
"""

from __future__ import annotations

from rebal.groups.model import Tri
from rebal.planner.admission.advice import cure_of
from rebal.planner.context import Context, ids
from rebal.planner.paths.rolling import cost_of, gate_of
from rebal.planner.paths.static import static_lines
from rebal.planner.plan import Step, StepKind
from rebal.planner.rehearsal.costs.cost import CostModel


def refresh(context: Context, number: int, cost: CostModel) -> Step:
    """The step; its `target_list` is empty: no list changes."""
    cure = cure_of(context, step=number)
    chosen = [facts for facts in context.members if facts.member.member_id in cure.members]
    known = context.reloaded is Tri.YES
    return Step(
        id=number,
        title="The coordinator learns every CURRENT list again",
        kind=StepKind.ROLLING,
        precondition=f"nothing: {cure.reason}, so the join is admitted whatever else the "
        "coordinator remembers"
        if cure.recommended
        else cure.reason,
        precondition_holds=cure.verdict,
        why=(
            f"the coordinator {'has' if known else 'may have'} been loaded again since the last "
            f"rebalance, and then it remembers only {context.elected} of every list: a member "
            f"restarted with [{context.target}] is rejected, although every list holds it (RB113)",
        ),
        order=(
            cure.text,
            *cure.after,
            *cure.risks,
            "look again: a static member that is down keeps what the load left until it returns, "
            "is removed, or its session expires",
            *static_lines(context, [f for f in chosen if f.member.instance_id is not None]),
        ),
        to_do=ids(chosen),
        gate=gate_of(
            context,
            shows=f"exit code 0, and the step that drops {context.keep or 'the old assignor'} as "
            "the next one",
            needs=(f"a probe that says yes for {context.target}, or a rebalance since the load",),
            holds=Tri.NO if known else Tri.CANNOT_TELL,
        ),
        rollback="nothing to undo: no list has changed",
        cost=cost_of(context, chosen, cost, ()),
        exit_code={Tri.YES: 0, Tri.NO: 3, Tri.CANNOT_TELL: 4}[cure.verdict],
    )
