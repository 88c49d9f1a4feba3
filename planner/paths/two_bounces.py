"""Two rolling restarts: first both assignors everywhere, then the target alone (KIP-429).

One bounce is not enough: a leader with old code ignores the partitions that members still own and
may assign them to others before they are revoked. The target stands first in the mixed list, up and
down: a coordinator reload keeps only the elected assignor of each list, and with the target elected
the second bounce is still admitted. franz-go follows the vote the same way.
"""

from collections.abc import Iterator, Sequence

from rebal.groups.model import Tri
from rebal.planner.clients import cooperative
from rebal.planner.context import EAGER, Context, Facts, ids
from rebal.planner.paths.one_bounce import drop_old, refresh
from rebal.planner.paths.parts import (
    again,
    back_goal,
    cost_of,
    everyone,
    follows_vote,
    gate_answer,
    gate_of,
    list_settings,
)
from rebal.planner.paths.restarts import commands_of, order_of
from rebal.planner.plan import Aim, Step, StepKind


def two_bounces(context: Context) -> tuple[Step, ...]:
    """Return both steps, each with the members that the evidence proves done.

    Between them is a restart with the current list where the coordinator may have forgotten the
    lists.
    """
    between = (refresh(context, 2),) if context.refresh else ()
    return (
        add_both(context, 1),
        *between,
        drop_old(context, context.narrow_step),
    )


def add_both(context: Context, number: int, left_out: Sequence[Facts] = ()) -> Step:
    """Return the first bounce: every member gets the target and keeps the old assignor behind it.

    `left_out` are members whose client does not accept such a list; another step concerns them.
    """
    names = tuple(filter(None, [context.target, context.keep]))
    lacking = [facts for facts in context.lacking if facts not in left_out]
    unsure = [facts for facts in context.unsure if facts not in left_out]
    rest = [*lacking, *unsure]
    kinds = "eager and cooperative assignors together" if context.both_kinds else "two assignors"
    but = f" but {context.named(left_out, 3)}" if left_out else ""
    old = context.keep or "the old assignor"
    return Step(
        id=number,
        title=f"Every member{but} gets {context.target} before {old}",
        kind=StepKind.ROLLING,
        precondition=f"every client accepts {kinds}",
        precondition_holds=Tri.YES,
        config=list_settings(context, names, rest or context.members),
        target_list=names,
        why=tuple(_why_both(context)),
        order=tuple(order_of(context, rest)),
        to_do=ids(lacking),
        done=ids(context.holding),
        unknown=ids(unsure),
        left_out=tuple(sorted({facts.family for facts in left_out if facts.family})),
        gate=gate_of(
            context,
            shows=f"{everyone(context)}{but} supports {context.target}",
            needs=(f"every member's list, or a probe that says yes for {context.target}",),
            holds=gate_answer(context, rest, lacking),
            aim=Aim.WIDEN,
        ),
        rollback=f"[{context.keep or 'the old assignor'}] while elected, then plan --to "
        f"{back_goal(context)}",
        commands=(*commands_of(context, rest), again(context)),
        cost=cost_of(context, rest, names),
    )


def _why_both(context: Context) -> Iterator[str]:
    target, keep = context.target, context.keep or "the old assignor"
    yield f"no list needs to be known: {keep} stays, which every member supports"
    yield (
        f"{target} stands first because a coordinator reload keeps only the elected assignor of "
        f"every list: with {target} elected the next step is still admitted, with {keep} first "
        "its members would be rejected (RB107, RB113)"
    )
    if any(map(follows_vote, context.members)):
        yield (
            f"franz-go follows the vote: its members run {target}'s protocol as soon as it is "
            "elected, which is when the last member holds both"
            + (
                "; they then revoke all partitions at once and resume from the committed offsets, "
                "so records may be read twice"
                if context.goal == EAGER
                else ""
            )
        )
    if context.goal == EAGER and cooperative(context.keep or "") is Tri.NO:
        yield (
            f"no member may go straight to [{target}]: it shares no assignor with members on "
            f"{keep} alone, is rejected and stops (RB101)"
        )
    elif context.goal == EAGER:
        yield (
            f"no member may go straight to [{target}]: an eager-only member shares no assignor "
            "with members on a cooperative assignor alone, is rejected and stops (RB108); an "
            "automatic rollback of a deployment does exactly that"
        )
        yield ("keep the client version in this bounce; deploy an older one in the second bounce")
    else:
        yield (
            "two bounces, because a leader with old code ignores the partitions that members "
            "still own, and could assign them to others before they are revoked (KIP-429)"
        )
        yield (
            "deploy a new client version, or new code of a custom assignor, in this bounce, never "
            "in the second (RB111)"
        )
