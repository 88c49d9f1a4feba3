"""RB908: the brokers' limit of members was not read."""

from rebal.planner.advice.remedies import NO_LIMIT
from rebal.planner.rules.registry import Context, Findings, Risk, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import ahead, classic, planning


@rule(
    "RB908",
    Severity.ASK,
    "The brokers' limit of members was not read",
    reference="group.max.size (KIP-389); GroupMetadataManager.acceptJoiningMember",
    applies=(planning, classic),
    traits=(Trait.ADMISSION,),
    accepts=Risk.UNKNOWN_LIMIT,
)
def unknown_limit(context: Context) -> Findings:
    """A static member that restarts needs a free place, and nobody knows whether there is one.

    Why it matters: its old entry stays in the group until its session ends. If group.max.size
    equals the number of members, its return is rejected with GROUP_MAX_SIZE_REACHED and it stops. A
    dynamic member leaves when it stops, so it comes back to its own place.

    How to find out: the right to DESCRIBE_CONFIGS on the cluster, or a probe, which asks for a
    place. Or ask who runs the brokers: Kafka's default is no limit.

    How to fix it: where no limit is set, say so: --ignore RB908 --reason TEXT.
    """
    static = [facts for facts in ahead(context) if facts.static]
    memory = context.memory
    if static and context.asked and memory.max_size is None and not memory.room:
        yield found(
            f"{context.named(static)} may find the group full when it restarts: the brokers' limit "
            "of members was not read.",
            result=Tri.CANNOT_TELL,
            members=static,
            fix="Allow DESCRIBE_CONFIGS on the cluster, or add --probe; or ask who runs the "
            "brokers, and state it.",
            commands=[context.accepting(Risk.UNKNOWN_LIMIT.rule, NO_LIMIT)],
        )
