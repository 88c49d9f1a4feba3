"""RB501: Streams uses upgrade.from, not an assignor list."""

from rebal.planner.commands import read_more
from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Findings, PathKind, Severity, found, rule
from rebal.planner.rules.scope import planning, streams_program


@rule(
    "RB501",
    Severity.BLOCK,
    "Kafka Streams never takes partition.assignment.strategy",
    reference="Kafka Streams upgrade guide (upgrade.from); KIP-429; KIP-1124",
    applies=(planning, streams_program),
    answered_by={
        PathKind.FINISHED,
        PathKind.STREAMS_ONE_BOUNCE,
        PathKind.STREAMS_TWO_BOUNCES,
        PathKind.STREAMS_DOWN,
        PathKind.STREAMS_BACK,
        PathKind.KIP1071,
        PathKind.KIP1071_BACK,
    },
)
def streams(context: Context) -> Findings:
    """The group is a Kafka Streams program, with its own assignor and its own upgrade setting.

    Why it matters: Streams from 2.4 on rebalances cooperatively by itself. Below 2.4, or with
    upgrade.from left at 2.3 or less, it is EAGER; 4.0 and later have no EAGER and do not start with
    such an upgrade.from. Setting partition.assignment.strategy on it is wrong in any version.

    How to find out: the elected assignor is `stream`. Each member's own bytes give bounds for its
    version; the request log or the program's log shows it. upgrade.from is in its configuration.

    How to fix it: from 2.4 on: remove upgrade.from and restart the instances one by one. From below
    2.4: two bounces, first with the new version and upgrade.from set to the old one, then without
    upgrade.from (and, for a jump to 4.x, over a bridge release, 2.4 to 3.9: KIP-1124).
    """
    if context.goal != CONSUMER:
        versions = sorted({facts.version for facts in context.members if facts.version})
        known = f" (runs {', '.join(versions)})" if versions else ""
        yield found(
            f"this Kafka Streams program{known} must not get an assignor list: it rebalances "
            "cooperatively from 2.4 on, unless upgrade.from keeps it EAGER.",
            members=context.members,
            fix="Check that upgrade.from is not set (any value up to 2.3 keeps it EAGER).",
            commands=[read_more("RB501")],
        )
