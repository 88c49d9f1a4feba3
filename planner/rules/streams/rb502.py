"""RB502: upgrade.from was left set."""

from rebal.groups.model import RebalanceProtocol
from rebal.groups.streams import EAGER_VALUES
from rebal.planner.advice.steps import restart_fix
from rebal.planner.context import EAGER
from rebal.planner.programs import below_cooperative, running
from rebal.planner.rules.registry import (
    Context,
    Facts,
    Findings,
    PathKind,
    Severity,
    Tri,
    found,
    rule,
)
from rebal.planner.rules.scope import planning, stable, streams_program


@rule(
    "RB502",
    Severity.WARN,
    "upgrade.from may still be set on a Streams program",
    reference="Kafka: docs/streams/upgrade-guide (upgrade.from); KIP-429",
    applies=(planning, streams_program, stable),
    handled_by={
        PathKind.STREAMS_ONE_BOUNCE,
        PathKind.STREAMS_TWO_BOUNCES,
        PathKind.STREAMS_DOWN,
        PathKind.STREAMS_BACK,
    },
)
def upgrade_from_left(context: Context) -> Findings:
    """A Streams program that was upgraded in two bounces may never have had the second one.

    Why it matters: with upgrade.from at 2.3 or less Streams stays EAGER and stops all tasks at each
    rebalance, whatever its version (below 4.0, which does not start with it: RB506). With a later
    value it keeps writing old formats. Nothing fails, so nobody notices.

    How to find out: look for upgrade.from in the configuration (--inventory). The log of an
    instance prints it at its start under `StreamsConfig values:`, and from 2.4 to 3.9 which
    rebalance protocol is enabled (--client-log). A member that owned nothing when it rejoined is
    EAGER (--request-log), one that kept some partitions is COOPERATIVE.

    How to fix it: remove upgrade.from and restart the instances one by one.
    """
    change = "Remove upgrade.from from the configuration."
    old = [facts for facts in context.members if below_cooperative(context, facts) is Tri.YES]
    # While somebody is below 2.4, and on the way down, an old value is what the plan asks for.
    wanted = EAGER_VALUES if old or context.goal == EAGER else ()
    declared = [facts for facts in context.members if facts.upgrade_from not in (None, *wanted)]
    if declared:
        values = sorted({str(facts.upgrade_from) for facts in declared})
        yield found(
            f"{context.named(declared)} will run with upgrade.from={', '.join(values)}, as the "
            "configuration says: values up to 2.3 keep an instance EAGER, later ones make "
            "it write old formats.",
            members=declared,
            evidence=[f.member.declared.evidence for f in declared if f.member.declared],
            fix=restart_fix(context, declared, change=change),
        )
    if wanted:
        return
    eager = [f for f in running(context, RebalanceProtocol.EAGER) if f not in declared]
    if eager:
        values = sorted({value for facts in eager if (value := _printed(facts))})
        shown = f" ({', '.join(values)})" if values else ""
        yield found(
            f"{context.named(eager)} still {'runs' if len(eager) == 1 else 'run'} EAGER although "
            f"no instance is below 2.4: upgrade.from was left set{shown}.",
            members=eager,
            fix=restart_fix(context, eager, change=change),
        )
    later = [f for f in context.members if _printed(f) and f not in (*declared, *eager)]
    if later:
        values = sorted({str(_printed(facts)) for facts in later})
        yield found(
            f"{context.named(later)} {'keeps' if len(later) == 1 else 'keep'} writing old formats: "
            f"the log shows upgrade.from={', '.join(values)}. The rebalance protocol is "
            "COOPERATIVE already.",
            members=later,
            evidence=[item for f in later if f.member.ran for item in f.member.ran.evidence],
            fix=restart_fix(context, later, change=change),
        )
    unknown = running(context, RebalanceProtocol.CANNOT_TELL)
    if unknown and len(unknown) == len(context.members) and not declared:
        yield found(
            "all instances may still run EAGER because of upgrade.from: none was seen to keep "
            "partitions across a rebalance.",
            result=Tri.CANNOT_TELL,
            members=unknown,
            fix=restart_fix(
                context, unknown, change="Look for upgrade.from in the configuration; remove it."
            ),
        )


def _printed(facts: Facts) -> str | None:
    """Return upgrade.from as the log of the running instance shows it; None if unset or no log."""
    return facts.member.ran.upgrade_from if facts.member.ran is not None else None
