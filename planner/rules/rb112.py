"""RB112: a custom assignor whose rebalance protocols are not known."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import CONSUMER, Context
from rebal.planner.families import cooperative
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB112",
    Severity.BLOCK,
    "The elected assignor is a custom one, and its rebalance protocols are not known",
    reference="KIP-429: ConsumerPartitionAssignor.supportedProtocols",
)
def custom_assignor(context: Context) -> Iterator[Finding]:
    """The first bounce would put an assignor that rebal does not know into a mixed list.

    Why it matters: a consumer whose assignors have no rebalance protocol in common fails when it
    is built. cooperative-sticky supports COOPERATIVE and EAGER; a custom assignor supports what
    its supportedProtocols() says, which is EAGER alone unless it was changed.

    How to find out: read supportedProtocols() of that class.

    How to fix it: if it returns EAGER, or both, the mixed list works: accept it with
    --ignore RB112 --reason "…", which the plan records. Any change of the custom assignor's own
    code belongs in the first bounce of an upgrade, and in the second one of a downgrade.
    """
    if (
        not context.planning
        or not context.classic
        or not context.elected
        or context.goal == CONSUMER
    ):
        return
    if (context.lacking or context.unsure) and cooperative(context.elected) is Tri.CANNOT_TELL:
        yield found(
            f"the group runs {context.elected}, an assignor that is not known here: whether it "
            f"can stand in one list with {context.target} depends on its supportedProtocols().",
            result=Tri.CANNOT_TELL,
            fix='If it supports EAGER: --ignore RB112 --reason "it supports EAGER".',
        )
