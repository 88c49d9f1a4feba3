"""RB404: Connect and Streams cannot take the consumer's way to KIP-848."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.version_faults import faults_of, version_findings


@rule(
    "RB404",
    Severity.BLOCK,
    "Connect workers and Streams programs cannot use group.protocol=consumer",
    reference="KIP-848; KIP-1071; Kafka: docs/getting-started/upgrade",
)
def no_consumer_protocol(context: Context) -> Iterator[Finding]:
    """The way to KIP-848 is for plain consumers only.

    Why it matters: Connect's worker groups are not consumer groups and have no KIP-848 kind at
    all. Kafka Streams has a protocol of its own (KIP-1071, group.protocol=streams); setting
    group.protocol=consumer on it is refused.

    How to find out: the group's protocol type (connect), or the elected assignor (stream).

    How to fix it: leave Connect workers on connect.protocol=sessioned; sink connectors' own
    groups (connect-NAME) are consumer groups and may move. For Streams see KIP-1071, and do not
    move a classic Streams group on brokers of 4.2.0 (KAFKA-20254).
    """
    if context.goal != "consumer":
        return
    if context.group.protocol_type == "connect":
        yield found("these are Connect workers: no KIP-848 kind of their group exists.")
    elif context.streams:
        yield found(
            "this is a Kafka Streams program: its way is KIP-1071 (group.protocol=streams), not "
            "group.protocol=consumer."
        )
        yield from version_findings(context, faults_of("RB404"))
