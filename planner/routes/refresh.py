"""One restart with the CURRENT list, so that the coordinator knows every list again (RB113).

A coordinator that loads a group remembers only the elected assignor of every list. Until each
member has joined again, one that is restarted with another assignor alone is refused. A restart
with the current list is always admitted, because every list holds the elected assignor, and it
makes all members join again.
"""

from __future__ import annotations

from rebal.groups.model import Tri
from rebal.planner.context import Context, ids
from rebal.planner.cost import CostModel
from rebal.planner.plan import Step, StepKind
from rebal.planner.routes.rolling import cost_of, gate_of
from rebal.planner.routes.static import static_lines


def refresh(context: Context, number: int, cost: CostModel) -> Step:
    """The step; its `target_list` is empty: no list changes."""
    dynamic = [facts for facts in context.members if facts.member.instance_id is None]
    chosen = (dynamic or context.members)[:1]
    known = context.reloaded is Tri.YES
    # An exact list without the elected assignor contradicts the vote: then nothing is sure.
    elected = str(context.elected)
    sure = all(context.supports(facts, elected) is Tri.YES for facts in context.members)
    return Step(
        id=number,
        title="One restart with the CURRENT list, so that the coordinator knows every list",
        kind=StepKind.ROLLING,
        precondition=f"nothing: {context.elected} is in every list, so the restarted member is "
        "admitted whatever the coordinator remembers",
        precondition_holds=Tri.YES if sure else Tri.CANNOT_TELL,
        why=(
            f"the coordinator {'has' if known else 'may have'} been loaded again since the last "
            f"rebalance, and then it remembers only {context.elected} of every list: a member "
            f"restarted with [{context.target}] would be refused, although every list holds it "
            "(RB113)",
        ),
        order=(
            f"restart {context.named(chosen)} with its CURRENT list: change nothing",
            "wait until the group is Stable: every member has joined again",
            *static_lines(context, () if dynamic else chosen),
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
        exit_code=0 if sure else 4,
    )
