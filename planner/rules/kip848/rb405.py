"""RB405: settings of the classic protocol with which a KIP-848 client does not start."""

from collections.abc import Iterator, Sequence

from rebal.planner.commands import NamedCommand
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.settings import KEY


@rule(
    "RB405",
    Severity.BLOCK,
    "A configuration with group.protocol=consumer still has classic settings",
    reference="KIP-848; Kafka: docs/operations/consumer-rebalance-protocol; Wolverine#3486",
    traits={Trait.NEXT_START},
)
def classic_settings(context: Context) -> Findings:
    """A client with group.protocol=consumer does not start while any of three settings is set.

    Why it matters: in KIP-848 the broker decides partition.assignment.strategy, session.timeout.ms
    and heartbeat.interval.ms, and clients fail at start when they are set. A restarted member then
    crashes in a loop.

    How to find out: read the configuration of the next start (--inventory), and what frameworks and
    defaults of the service set beside it.

    How to fix it: remove the three settings in the same change that sets group.protocol=consumer.
    group.remote.assignor replaces the assignor list. The timeouts belong to the group now:
    consumer.session.timeout.ms and consumer.heartbeat.interval.ms of the group's own configuration
    (kafka-configs.sh, entity type groups), else the broker's group.consumer.session.timeout.ms and
    group.consumer.heartbeat.interval.ms.

    Does not fire while the configuration does not say consumer: there the settings are right.
    """
    for facts in context.members:
        declared = facts.member.declared
        if declared is None or declared.group_protocol != "consumer":
            continue
        left = [
            *([KEY] if declared.list else []),
            *declared.classic_only,
        ]
        if left:
            yield found(
                f"{facts.name} will not start again: its configuration has "
                f"group.protocol=consumer and still sets {', '.join(left)}.",
                members=(facts,),
                evidence=(declared.evidence,),
                fix=f"Remove {', '.join(left)}.{_now_at(left)}",
                commands=_group_settings(context, left),
            )


def _now_at(left: Sequence[str]) -> str:
    """Return where the timeouts are set now."""
    moved = [f"consumer.{name}" for name in left if name != KEY]
    said = f" The group's own configuration has {' and '.join(moved)} instead"
    return f"{said} (kafka-configs.sh, entity type groups)." if moved else ""


def _group_settings(context: Context, left: Sequence[str]) -> Iterator[NamedCommand]:
    """Yield the command that shows the group's own configuration, where a timeout moves there."""
    if any(name != KEY for name in left):
        of_group = ("--entity-type", "groups", "--entity-name", context.group.group_id)
        line = context.given.kafka("kafka-configs.sh", "--describe", *of_group)
        yield NamedCommand("show the group's own configuration", line)
