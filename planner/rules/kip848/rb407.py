"""RB407: under KIP-848 a new process with an instance id in use is rejected."""

from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import still_classic, to_consumer


@rule(
    "RB407",
    Severity.WARN,
    "Under KIP-848 a new process with an instance id in use is rejected",
    reference="KIP-848; Kafka upgrade notes for 4.0 (UnreleasedInstanceIdException)",
    applies=(to_consumer,),
    traits=(Trait.REVIEW,),
)
def instance_id_in_use(context: Context) -> Findings:
    """KIP-848 rejects the newer of two processes with one instance id; classic fences the older.

    Why it matters: a roll-out that starts the new process before the old one has left (a surge, or
    an old one that hangs) worked because the old one was fenced. Under KIP-848 the new one fails at
    start, and the roll-out stops or loops.

    How to find out: members with an instance id, and how the deployment replaces them.

    How to fix it: stop the old process before the new one starts (a StatefulSet, Recreate, or
    maxSurge 0), and let it close properly: the new one may start when the group no longer shows the
    id (rebal inspect). A process that was killed holds its id until its session ends.
    """
    static = [f for f in still_classic(context) if f.static]
    if static:
        yield found(
            f"the new process of {context.named(static)} is rejected under KIP-848 if it starts "
            "before the old one with its instance id has left.",
            members=static,
            fix="Stop the old process first, and use no surge. The group shows its id until it has "
            "left.",
        )
