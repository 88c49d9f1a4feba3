"""RB416: tools that describe groups in the classic way take a KIP-848 group for a dead one."""

from rebal.groups.model import GroupType
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import to_consumer


@rule(
    "RB416",
    Severity.ASK,
    "Do the tools that watch this group know KIP-848?",
    reference="KIP-848 (ConsumerGroupDescribe); redpanda-data/console#1815; tchiotludo/akhq#2720; "
    "IBM/sarama#3746; redpanda-data/kminion#352",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def tools(context: Context) -> Findings:
    """A user interface, an exporter or an alert that knows classic groups alone shows this one as
    Dead.

    Why it matters: DescribeGroups answers GROUP_ID_NOT_FOUND for a KIP-848 group, with the state
    Dead and no members; only ConsumerGroupDescribe shows it. The lag disappears from dashboards,
    and somebody may restart, reset or delete a group that works.

    How to find out: which tools read this group (AKHQ, Redpanda Console, kminion, tools on sarama,
    your own on an Admin client before 4.0), and whether their version calls ConsumerGroupDescribe.

    How to answer it: upgrade them first, and move a group that matters less before this one.
    Kafka's own kafka-consumer-groups.sh of 4.0 and later shows such groups, as rebal inspect does.
    """
    if context.group.type is not GroupType.CONSUMER:
        yield found(
            "do the tools that watch this group (a user interface, a lag exporter, alerts) know "
            "KIP-848? Others show it as Dead, without members or lag.",
        )
