"""RB407: under KIP-848 the newcomer with a taken instance id is refused."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import found, rule
from rebal.planner.rules.scope import still_classic, to_consumer


@rule(
    "RB407",
    Severity.WARN,
    "Under KIP-848 an instance id that is in use refuses the newcomer",
    reference="KIP-848; Kafka upgrade notes for 4.0 (UnreleasedInstanceIdException)",
)
def newcomer_is_refused(context: Context) -> Iterator[Finding]:
    """Of two processes with one instance id, classic fences the older, KIP-848 the newer.

    Why it matters: a roll-out that starts the new process before the old one has gone (a surge,
    or an old one that hangs) worked by fencing the old. Now the new one fails at start, and the
    roll-out stands still or loops.

    How to find out: members with an instance id, and how the deployment replaces them.

    How to fix it: stop the old process before the new one starts (a StatefulSet, Recreate, or
    maxSurge 0), and let it close properly.
    """
    if not to_consumer(context):
        return
    static = [f for f in still_classic(context) if f.member.instance_id is not None]
    if static:
        yield found(
            f"{context.named(static)}: static; under KIP-848 a process that starts while the old "
            "one with its instance id is still there is refused.",
            members=static,
            fix="Stop the old process first; no surge.",
        )
