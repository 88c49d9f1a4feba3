"""RB112: a custom assignor whose rebalance protocols the plan rests on, and are not known."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import EAGER, Context
from rebal.planner.kinds import custom
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB112",
    Severity.BLOCK,
    "The plan rests on a custom assignor's rebalance protocols, which are not known",
    reference="KIP-429: ConsumerPartitionAssignor.supportedProtocols; ConsumerCoordinator.java",
)
def custom_assignor(context: Context) -> Iterator[Finding]:
    """The way back would put a custom assignor beside an eager one, or end on it.

    Why it matters: a consumer whose assignors have no rebalance protocol in common fails when it
    is built. A custom assignor supports what its supportedProtocols() says: EAGER alone unless it
    was changed. If that is COOPERATIVE alone, [range, custom] does not start. And a plan that ends
    on a custom assignor ends on EAGER only if it supports nothing else.

    On the way up nothing rests on it: cooperative-sticky supports both protocols, so a list of it
    and any other assignor starts, and is EAGER or COOPERATIVE as the other one allows.

    How to find out: read supportedProtocols() of that class. Or look at a rebalance: members that
    keep their partitions when they rejoin run COOPERATIVE, and rebal inspect shows it.

    How to fix it: if it returns EAGER (to end on it: EAGER alone), accept it with
    --ignore RB112 --reason "…", which the plan records. Any change of the custom assignor's own
    code belongs in the first bounce of an upgrade, and in the second one of a downgrade.
    """
    if not context.planning or not context.classic or context.goal != EAGER:
        return
    if custom(context.target):
        yield found(
            f"the plan ends on {context.target}, an assignor that is not known here: whether its "
            "members run EAGER then depends on its supportedProtocols().",
            result=Tri.CANNOT_TELL,
            fix='If it supports EAGER alone: --ignore RB112 --reason "it supports EAGER alone".',
        )
    elif context.keep and custom(context.keep) and (context.lacking or context.unsure):
        yield found(
            f"the group runs {context.keep}, an assignor that is not known here: a client whose "
            f"list is [{context.target}, {context.keep}] starts only if it supports EAGER.",
            result=Tri.CANNOT_TELL,
            fix='If it does: --ignore RB112 --reason "it supports EAGER".',
        )
