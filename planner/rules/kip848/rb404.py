"""RB404: Connect and Streams cannot use the consumer's path to KIP-848."""

from rebal.planner.commands import NamedCommand
from rebal.planner.context import STREAMS
from rebal.planner.rules.registry import Context, Findings, Severity, found, rule


@rule(
    "RB404",
    Severity.BLOCK,
    "Connect workers and Streams programs cannot use group.protocol=consumer",
    reference="KIP-848; KIP-1071; Kafka: docs/getting-started/upgrade",
)
def no_consumer_protocol(context: Context) -> Findings:
    """The path to KIP-848 is for plain consumers only.

    Why it matters: Connect's worker groups are not consumer groups and have no KIP-848 form. Kafka
    Streams has a protocol of its own (KIP-1071, group.protocol=streams) and does not accept
    group.protocol=consumer.

    How to find out: the group's protocol type (connect), or the elected assignor (stream).

    How to fix it: leave Connect workers on connect.protocol=sessioned. The groups of sink
    connectors (connect-NAME) are consumer groups and may move. For Streams plan with --to streams.
    """
    if context.goal != "consumer":
        return
    if context.group.protocol_type == "connect":
        yield found(
            "this group cannot move to KIP-848: it is a group of Connect workers, which has no "
            "KIP-848 form.",
            fix="Leave the workers on connect.protocol=sessioned, which is incremental.",
        )
    elif context.streams:
        yield found(
            "this group cannot use group.protocol=consumer: it is a Kafka Streams program, whose "
            "protocol is KIP-1071 (group.protocol=streams).",
            fix="Plan it with --to cooperative in the classic protocol, or with --to streams.",
            commands=[
                NamedCommand("plan the streams protocol", context.replan(to=STREAMS)),
            ],
        )
