"""RB203: Java 3.2.0 repeats a commit without end."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB203",
    Severity.WARN,
    "Java 3.2.0 can repeat a commit for ever before it joins",
    reference="KAFKA-14024 (3.2.1)",
)
def commit_loop(context: Context) -> Iterator[Finding]:
    """Before it joins, a member commits what it has read, and this release may never stop that.

    Why it matters: while one member repeats its commit it does not join, the others wait for it
    until max.poll.interval.ms has passed, and every restart of the roll-out can set it off
    again.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade to 3.2.1 or later in the first bounce.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB203")
