"""RB112: the plan depends on a custom assignor whose rebalance protocols are not known."""

from collections.abc import Sequence

from rebal.groups.model import Knowledge
from rebal.planner.advice.steps import restart_fix
from rebal.planner.clients import classes_of, custom
from rebal.planner.context import COOPERATIVE_STICKY, EAGER
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Tri, found, rule
from rebal.planner.rules.scope import by_lists, planning


@rule(
    "RB112",
    Severity.BLOCK,
    "The plan depends on a custom assignor whose rebalance protocols are not known",
    reference="KIP-429: ConsumerPartitionAssignor.supportedProtocols; ConsumerCoordinator.java",
    applies=(planning, by_lists),
    accepts=Risk.OWN_EAGER,
)
def custom_assignor(context: Context) -> Findings:
    """The plan would use a custom assignor beside another one, or end on it in a downgrade.

    Why it matters: a consumer whose assignors have no rebalance protocol in common fails when it is
    built. A custom assignor supports what its supportedProtocols() returns: EAGER alone unless that
    was changed. If it returns COOPERATIVE alone, a client with [range, custom] does not start. A
    plan that ends on a custom assignor ends on EAGER only if the assignor supports nothing else. A
    class of the application's own that has the name of one of Kafka's, such as range, is a custom
    assignor too.

    An upgrade to cooperative-sticky does not depend on it: cooperative-sticky supports both
    protocols, so a list of it and any other assignor starts, and runs EAGER or COOPERATIVE as the
    other one allows. Nor does a plan depend on it where a member already runs such a list.

    How to find out: read supportedProtocols() of that class. Or look at a rebalance: members that
    keep their partitions when they rejoin run COOPERATIVE, and rebal inspect shows it.

    How to fix it: if it returns EAGER (to end on it: EAGER alone), accept it with --ignore RB112
    --reason "…", which the plan records. A change of the custom assignor's own code belongs in the
    first bounce of an upgrade, and in the second one of a downgrade.
    """
    ends = [name for name in (context.target, context.keep) if name is not None]
    known = not custom(context.target) and context.target not in context.borrowed
    if context.goal == EAGER and not known:
        yield found(
            f"members may not run EAGER at the end of this plan: it ends on {context.target}, "
            f"{_which(context, context.target)}, and its supportedProtocols() decides.",
            result=Tri.CANNOT_TELL,
            fix="If it supports EAGER alone, accept RB112.",
            commands=[context.accepting("RB112", "it supports EAGER alone")],
        )
    elif COOPERATIVE_STICKY in {*ends} - context.borrowed or not _not_kafkas(context, ends):
        return
    elif (context.lacking or context.unsure) and not _runs_somewhere(context, ends):
        yield found(
            f"a client with [{', '.join(ends)}] may not start: both must support EAGER, or both "
            f"COOPERATIVE, and {_unknown(context, ends)}.",
            result=Tri.CANNOT_TELL,
            commands=[context.accepting("RB112", "both support EAGER")],
            fix="If both support EAGER, accept RB112. "
            + restart_fix(
                context,
                (*context.lacking, *context.unsure)[:1],
                tuple(ends),
                change="Or test that list on one member first.",
            ),
        )


def _not_kafkas(context: Context, ends: Sequence[str]) -> list[str]:
    return [name for name in ends if custom(name) or name in context.borrowed]


def _unknown(context: Context, ends: Sequence[str]) -> str:
    names = _not_kafkas(context, ends)
    return f"{' or '.join(names)} is {_which(context, names[0])}"


def _which(context: Context, name: str) -> str:
    if name in context.borrowed:
        shown = classes_of(context.snapshot).get(name)
        return f"here a class that is not Kafka's own{f' ({shown})' if shown else ''}"
    return "an assignor whose protocols are not known"


def _runs_somewhere(context: Context, ends: Sequence[str]) -> bool:
    """Return whether a member is known to run a list with all of these."""
    known = (facts.member.assignors for facts in context.members)
    return any(one.knowledge is Knowledge.EXACT and set(ends) <= set(one.list) for one in known)
