"""One rolling restart: every list holds the target and the old assignor already (KIP-726).

Java 3.0 and later have this default: [range, cooperative-sticky]. The old assignor comes first and
is elected, so after a reload the coordinator does not know the target until the next rebalance
(RB113). The step of `refresh` makes the coordinator learn every list again. Who must restart for it
depends on the members (planner/advice/remedies.py, `cure_of`): a dynamic member's restart with its
CURRENT list makes all running members rejoin; a static member's restart shows its own list only.
"""

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.advice.steps import cure_of
from rebal.planner.clients import cooperative, custom
from rebal.planner.context import EAGER, Context, ids
from rebal.planner.paths.parts import (
    cost_of,
    everyone,
    follows_vote,
    gate_answer,
    gate_of,
    list_settings,
)
from rebal.planner.paths.restarts import commands_of, order_of
from rebal.planner.plan import Aim, Step, StepKind
from rebal.planner.verdict import exit_code


def one_bounce(context: Context) -> tuple[Step, ...]:
    """Return the narrowing step, and before it the step of `refresh` where that is needed."""
    before = (refresh(context, 1),) if context.refresh else ()
    return (*before, drop_old(context, context.narrow_step))


def refresh(context: Context, number: int) -> Step:
    """Return the step that makes the coordinator learn every list; its `target_list` is empty
    because no list changes.
    """
    cure = cure_of(context)
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
            f"the coordinator {'has' if known else 'may have'} reloaded since the last rebalance "
            f"and then remembers only {context.elected} of every list: a member "
            f"restarted with [{context.target}] is rejected, although every list holds it (RB113)",
            "a static member that is down keeps its shortened list until it rejoins, is removed, "
            "or its session expires: look again afterwards",
        ),
        order=(cure.text, *cure.risks),
        to_do=ids(chosen),
        gate=gate_of(
            context,
            shows=f"the probe finds {context.target}, or a rebalance since the reload",
            holds=Tri.NO if known else Tri.CANNOT_TELL,
            aim=Aim.REFRESH,
        ),
        rollback="nothing to undo: no list has changed",
        cost=cost_of(context, chosen, ()),
        exit_code=exit_code(cure.verdict),
    )


def drop_old(context: Context, number: int) -> Step:
    """Return the narrowing bounce: every member drops the old assignor."""
    names = (context.target,)
    rest = [facts for facts in context.members if facts not in context.settled]
    to_do = [facts for facts in rest if Tri.YES is context.holds_old(facts)]
    unknown = [facts for facts in rest if facts not in to_do]
    kind = "cooperative" if context.goal == EAGER else "eager"
    left = f"assignor but {context.target}" if context.only_target else f"{kind} assignor"
    straight_back = "straight back (RB101)" if context.only_target else "straight back (RB108)"
    return Step(
        id=number,
        title=f"Every member drops {context.keep or f'its {kind} assignors'}",
        kind=StepKind.ROLLING,
        precondition=f"every list holds {context.target}, and the coordinator remembers it",
        precondition_holds=Tri.YES,
        config=list_settings(context, names, rest or context.members),
        target_list=names,
        why=tuple(_why_narrow(context)),
        order=tuple(order_of(context, rest)),
        to_do=ids(to_do),
        done=ids(context.settled),
        unknown=ids(unknown),
        gate=gate_of(
            context,
            shows=f"{everyone(context)} is proven to have no {left}",
            needs=(
                f"do not rely on the probe for {context.keep or 'the old assignor'}: it turns "
                "negative after the first restart",
                "each member is proven by its own log (--client-log), by partitions that it owns "
                "after its restart (a Java client), or by the request log; without them it needs "
                "its configuration (--inventory) and your confirmation (--confirm)",
            ),
            holds=gate_answer(context, rest, to_do),
            aim=Aim.NARROW,
        ),
        rollback=f"first [{context.target}, {context.keep or 'the old assignor'}], never "
        f"{straight_back}",
        commands=tuple(commands_of(context, rest)),
        cost=cost_of(context, rest, names),
    )


def _why_narrow(context: Context) -> Iterator[str]:
    yield (
        f"while one list lacks {context.target}, each member restarted with [{context.target}] is "
        "rejected and stops, and the member that lacks it ends up owning every partition"
    )
    if context.goal == EAGER and cooperative(context.keep or "") is Tri.NO:
        return
    if context.goal == EAGER:
        yield (
            "an older client version, or old code of a custom assignor, may be deployed in this "
            "bounce: a member restarted with both assignors is no longer COOPERATIVE"
        )
    elif not context.only_target and all(map(follows_vote, context.members)):
        yield (
            f"franz-go members are COOPERATIVE as soon as {context.target} is elected; without the "
            "old assignor no vote can turn them back to EAGER"
        )
    elif not context.only_target:
        but = ", except those of franz-go" if any(map(follows_vote, context.members)) else ""
        own = f" (or what {context.keep} allows)" if custom(context.keep or "range") else ""
        yield (
            "a restarted member is COOPERATIVE from here on, and those not restarted yet still "
            f"run EAGER{own}{but}: a leader with {context.target} accepts both protocols (KIP-429)"
        )
