"""RB510: what a program loses, or sets elsewhere, with the streams protocol."""

from rebal.planner.context import STREAMS
from rebal.planner.kip1071 import crosses
from rebal.planner.rules.registry import Context, Findings, Severity, found, rule
from rebal.planner.rules.scope import planning


@rule(
    "RB510",
    Severity.ASK,
    "The streams protocol has no regular expressions, and ignores settings of the program",
    reference="KIP-1071; Kafka: docs/streams/developer-guide (rebalance protocol)",
    applies=(planning, crosses),
)
def without_some_features(context: Context) -> Findings:
    """Some programs cannot run with group.protocol=streams, and some settings move to the group.

    Why it matters: a topology that subscribes by a regular expression is not supported, and a
    topology that changes needs a new group. The broker's sticky assignor replaces the program's:
    max.warmup.replicas, probing.rebalance.interval.ms, acceptable.recovery.lag,
    rack.aware.assignment.* and task.assignor.class are ignored. num.standby.replicas,
    session.timeout.ms and heartbeat.interval.ms are ignored too, without an error: a program with
    one standby replica starts with none, and a failure then restores its state from the topics.

    How to find out: search the program for Pattern, and its configuration for these settings. The
    classic protocol shows the group neither.

    How to answer it: leave a program with regular expressions on the classic protocol. Give the
    group its settings before the start, with kafka-configs.sh, entity type groups (the step has
    the commands): streams.num.standby.replicas, streams.session.timeout.ms (the brokers allow
    45000 to 60000 by default) and streams.heartbeat.interval.ms (5000 to 15000).
    """
    if context.goal == STREAMS:
        yield found(
            "does the program subscribe by a regular expression, change its topology, or rely on "
            "warm-up replicas? And does it set num.standby.replicas, session.timeout.ms or "
            "heartbeat.interval.ms, which the streams protocol ignores?",
            fix="Give those settings to the group before the start (the step has the commands).",
            before_step=1,
        )
