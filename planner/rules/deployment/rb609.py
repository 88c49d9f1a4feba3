"""RB609: a static member was fenced."""

from rebal.planner.rules.deployment.rb608 import fenced
from rebal.planner.rules.registry import Context, Findings, Severity, found, rule


@rule(
    "RB609",
    Severity.WARN,
    "A static member was fenced",
    reference="KIP-345; Kafka protocol: FENCED_INSTANCE_ID (82)",
)
def once(context: Context) -> Findings:
    """A process lost its group.instance.id to another process while it still ran.

    Why it matters: either the new process of a restart began before the old one had ended, or two
    processes run with one instance id (RB608). The second kind repeats.

    How to find out: compare the two addresses with the deployment.

    How to fix it: let the old process end before the new one begins (a StatefulSet does that, a
    Deployment with a surge does not), and give each process an instance id of its own.
    """
    for one in fenced(context):
        if not one.again:
            yield found(
                f"{one.text}: an old process that had not ended, or a second one.",
                members=[one.holder],
                evidence=[one.lost[-1].evidence],
                fix="Find out whether both addresses still run it, and give each process a "
                "group.instance.id of its own.",
            )
