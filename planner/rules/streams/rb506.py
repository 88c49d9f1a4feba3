"""RB506: an upgrade.from with which Kafka Streams 4.0 and later do not start."""

from rebal.groups.streams import BRIDGE, EAGER_UNTIL, EAGER_VALUES
from rebal.planner.programs import above_eager
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import streams_program


@rule(
    "RB506",
    Severity.BLOCK,
    "This Kafka Streams version does not start with its upgrade.from",
    reference="KIP-1124; Kafka: AssignorConfiguration; seen with 4.1.1",
    applies=(streams_program,),
)
def rejected_upgrade_from(context: Context) -> Findings:
    """Kafka Streams 4.0 and later have no EAGER, and stop at start with upgrade.from 2.3 or less.

    Why it matters: the instance does not survive its next restart: the consumer is not built
    (ConfigException), the stream thread stops, and its partitions go to the others, until each of
    them has been restarted too.

    How to find out: the version is in the request log or in the program's own log; upgrade.from is
    in its configuration (--inventory). A configuration or version that is not known gives no
    finding.

    How to fix it: remove upgrade.from before the restart. To upgrade from below 2.4, or to go back
    there, use a bridge release (2.4 to 3.9).
    """
    hit = [
        facts
        for facts in context.members
        if facts.upgrade_from in EAGER_VALUES and above_eager(context, facts) is Tri.YES
    ]
    if hit:
        values = sorted({str(facts.upgrade_from) for facts in hit})
        yield found(
            f"{context.named(hit)} will not start again: Kafka Streams {EAGER_UNTIL} and later do "
            f"not accept upgrade.from={', '.join(values)}.",
            members=hit,
            evidence=[f.member.declared.evidence for f in hit if f.member.declared],
            fix=f"Remove upgrade.from, or run {BRIDGE} for as long as it must be set.",
        )
