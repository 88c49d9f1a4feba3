"""RB908: the brokers' group settings were not read."""

from rebal.planner.advice.actions import DEFAULTS
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import ahead, planning, read_brokers, to_consumer, with_lists


@rule(
    "RB908",
    Severity.ASK,
    "The brokers' group settings were not read",
    reference="Kafka: group.max.size, group.consumer.max.size, group.consumer.migration.policy",
    applies=(planning, with_lists),
    traits=(Trait.ADMISSION,),
    accepts=Risk.UNREAD_SETTINGS,
)
def unread_settings(context: Context) -> Findings:
    """Limits that the brokers set can reject a restart, and nobody knows them here.

    Why it matters: a static member's old entry stays in the group until its session ends. If
    group.max.size equals the number of members, its return is rejected with GROUP_MAX_SIZE_REACHED
    and it stops. A move to KIP-848 needs room under group.consumer.max.size and a migration policy
    that allows it.

    How to find out: the right to DESCRIBE_CONFIGS on the cluster; for the first of these a probe
    is enough, which asks for a place. Or ask who runs the brokers.

    How to fix it: where the brokers keep Kafka's defaults (no limit of members; from 4.0 the policy
    is bidirectional), say so: --ignore RB908 --reason TEXT.
    """
    static = [facts for facts in ahead(context) if facts.static]
    full = static and not context.memory.room
    if context.asked and not context.snapshot.cluster.settings and (full or to_consumer(context)):
        yield found(
            "the brokers' limits of members were not read: a restart may find the group full.",
            result=Tri.CANNOT_TELL,
            members=static,
            fix=f"{read_brokers(context)} Or ask who runs the brokers, and state it.",
            commands=[context.accepting(Risk.UNREAD_SETTINGS.rule, DEFAULTS)],
        )
