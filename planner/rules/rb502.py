"""RB502: upgrade.from that was left set."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context, kept_partitions
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule


@rule(
    "RB502",
    Severity.WARN,
    "upgrade.from may still be set on a Streams program",
    reference="Kafka: docs/streams/upgrade-guide (upgrade.from); KIP-429",
)
def upgrade_from_left(context: Context) -> Iterator[Finding]:
    """A Streams program that was upgraded in two bounces may never have had the second one.

    Why it matters: with upgrade.from at 2.3 or less Streams stays EAGER and stops all tasks at each
    rebalance, whatever its version; with a later value it goes on writing old formats. Nothing
    fails, so nobody notices.

    How to find out: look for upgrade.from in the configuration. A member that kept partitions
    when it last joined is COOPERATIVE: there it is not set to 2.3 or less.

    How to fix it: remove upgrade.from and restart the instances one by one.

    Cannot tell is all that it says: the setting itself is never sent.
    """
    if not context.planning or not context.streams or not context.stable:
        return
    named = [facts for facts in context.members if not kept_partitions(facts.member)]
    if named and len(named) == len(context.members):
        yield found(
            "no instance has kept partitions across a rebalance: upgrade.from may still be set, "
            "which keeps them EAGER, or nothing was there to keep.",
            result=Tri.CANNOT_TELL,
            members=named,
            fix="Look for upgrade.from in the configuration; remove it and restart one by one.",
        )
