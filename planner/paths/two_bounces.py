"""Two rolling restarts: first both assignors everywhere, then the target alone (KIP-429).

The target comes first in the mixed list, up and down: when the coordinator loads the group again,
each list in its memory becomes just the elected assignor, and with the target first that is what
the second bounce needs; franz-go follows the vote the same way. Why two: a leader with old code
ignores the partitions that members still own and may give them away before they are revoked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rebal.groups.model import Tri
from rebal.planner.admission.wording import back_from_mixed
from rebal.planner.clients import cooperative
from rebal.planner.context import EAGER, Context, Facts, ids
from rebal.planner.paths.one_bounce import drop_old, refresh
from rebal.planner.paths.parts import (
    again,
    cost_of,
    expected_line,
    follows_vote,
    gate_answer,
    gate_of,
    list_settings,
)
from rebal.planner.paths.restarts import order_of
from rebal.planner.plan import Aim, Step, StepKind
from rebal.planner.rehearsal.costs.cost import CostModel


def two_bounces(context: Context, cost: CostModel) -> tuple[Step, ...]:
    """Both steps, with who has done what by the evidence; between them a restart with the current
    list where the coordinator may have forgotten the lists."""
    between = (refresh(context, 2, cost),) if context.refresh else ()
    return (
        add_both(context, 1, cost),
        *between,
        drop_old(context, context.narrow_step, cost),
    )


def add_both(
    context: Context, number: int, cost: CostModel, left_out: Sequence[Facts] = ()
) -> Step:
    """The first bounce: every member gets the target, and keeps the old assignor behind it.

    `left_out` are members whose client cannot take such a list; another step is theirs.
    """
    names = tuple(filter(None, [context.target, context.keep]))
    lacking = [facts for facts in context.lacking if facts not in left_out]
    unsure = [facts for facts in context.unsure if facts not in left_out]
    rest = [*lacking, *unsure]
    kinds = "both kinds" if context.both_kinds else "two assignors"
    everybody = "Every member" if not left_out else f"Every member but {context.named(left_out, 3)}"
    return Step(
        id=number,
        title=f"{everybody} gets {context.target} before {context.keep or 'the old assignor'}",
        kind=StepKind.ROLLING,
        precondition=f"every member's client takes a list of {kinds}; no list needs to be "
        f"known, because {context.keep or 'the old assignor'} stays, which every member supports",
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
            shows=f"exit code 0, and step {number + 1} as the next step: "
            f"{'they' if left_out else 'all members'} support {context.target}",
            needs=(
                f"every member's list, or a probe that says yes for {context.target}",
                *expected_line(context),
            ),
            holds=gate_answer(context, rest, lacking),
            aim=Aim.WIDEN,
        ),
        rollback=back_from_mixed(context.keep, context.target, again(context)),
        cost=cost_of(context, rest, cost, names),
    )


def _why_both(context: Context) -> Iterator[str]:
    target, keep = context.target, context.keep or "the old assignor"
    yield (
        f"{target} stands first because a coordinator that loads the group again remembers only "
        f"the elected assignor of every list: with {target} elected, that is what the next step "
        f"needs, and with {keep} first its members would be refused (RB107, RB113)"
    )
    if any(map(follows_vote, context.members)):
        yield (
            f"franz-go follows the vote: its members run {target}'s protocol as soon as it is "
            "elected, which is when the last member holds both"
            + (
                "; it then gives up everything at once and reads on from the committed offsets, so "
                "records may come twice"
                if context.goal == EAGER
                else ""
            )
        )
    if context.goal == EAGER and cooperative(context.keep or "") is Tri.NO:
        yield (
            f"no member may go straight to [{target}]: it has nothing in common with members that "
            f"are on {keep} alone, is refused and stops (RB101)"
        )
    elif context.goal == EAGER:
        yield (
            f"no member may go straight to [{target}]: an eager-only member has nothing in common "
            "with members that are on a cooperative assignor alone, is refused and stops (RB108); "
            "this is also what an automatic roll-back of a deployment does"
        )
        yield (
            "keep the client version (the byte code) in this bounce; an older one goes in with "
            "the second bounce"
        )
    else:
        yield (
            "two bounces, because a leader with old code ignores the partitions that members "
            "still own, and could give them away before they are revoked (KIP-429)"
        )
        yield (
            "a new client version, or new code of a custom assignor (the byte code), goes in with "
            "this bounce, never with the second (RB111)"
        )
