"""RB505: a COOPERATIVE Streams instance beside one below 2.4."""

from rebal.groups.model import RebalanceProtocol
from rebal.groups.streams import BRIDGE, COOPERATIVE_SINCE
from rebal.planner.advice.steps import restart_fix
from rebal.planner.programs import above_eager, below_cooperative, running
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import planning, stable, streams_program


@rule(
    "RB505",
    Severity.BLOCK,
    "A COOPERATIVE Streams instance runs beside one below 2.4",
    reference="KIP-429; Kafka Streams upgrade guide (upgrade.from); seen with 2.3.1 and 3.9.1",
    applies=(planning, streams_program, stable),
    traits=(Trait.STATED,),
)
def cooperative_beside_old(context: Context) -> Findings:
    """An instance below 2.4 shares the group with one that keeps its partitions at a rebalance.

    Why it matters: while the old one leads, it assigns partitions to new owners before a
    COOPERATIVE instance has given them up. Both process them until the old owner has stopped; no
    join is rejected and nothing is logged. This was seen with 2.3.1 leading and 3.9.1 without
    upgrade.from; with upgrade.from set it did not happen.

    How to find out: an instance's own bytes show its version. Its rebalance protocol is in its
    start-up log (2.4 to 3.9, --client-log), or shows at a rebalance (--request-log): what it still
    owned when it rejoined.

    How to fix it: set upgrade.from on the new instance to the old one's version and restart it.
    Instances of 4.0 and later do not start with such a value: run a bridge release (2.4 to 3.9)
    instead.
    """
    old = [facts for facts in context.members if below_cooperative(context, facts) is Tri.YES]
    new = [facts for facts in context.members if old and facts not in old]
    late = context.named([facts for facts in new if above_eager(context, facts) is Tri.YES])
    change = (
        f"{f'Give {late} a version from {COOPERATIVE_SINCE} to {BRIDGE}. ' if late else ''}"
        f"On each instance from {COOPERATIVE_SINCE} to {BRIDGE}, set "
        f"upgrade.from to the version of {context.named(old)}."
    )
    kept = running(context, RebalanceProtocol.COOPERATIVE, new)
    if kept:
        yield found(
            f"a partition can have two owners for a moment at a rebalance: {context.named(kept)} "
            f"{'runs' if len(kept) == 1 else 'run'} COOPERATIVE beside {context.named(old)} "
            f"(below {COOPERATIVE_SINCE}).",
            members=kept,
            fix=restart_fix(context, kept, change=change),
        )
    unknown = running(context, RebalanceProtocol.CANNOT_TELL, new)
    if unknown and not kept:
        who = context.named(unknown)
        yield found(
            f"a partition may have two owners for a moment at a rebalance: {who} may run "
            f"COOPERATIVE beside {context.named(old)} (below {COOPERATIVE_SINCE}).",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=f"Look whether {who} {'was' if len(unknown) == 1 else 'were'} started with "
            "upgrade.from (the start-up log shows it, --client-log), and say so. If not: "
            f"{restart_fix(context, unknown, change=change)}",
            commands=[context.accepting("RB505", "every new instance has upgrade.from set")],
        )
