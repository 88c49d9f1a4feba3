"""RB207: Java 3.5 to 3.7.0 assigns wrongly with racks or several topics."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB207",
    Severity.WARN,
    "This Java version spreads racks or topics unevenly",
    reference="KAFKA-15170; KAFKA-16277 (both 3.7.1, 3.8.0)",
)
def uneven(context: Context) -> Iterator[Finding]:
    """The sticky assignors of these releases mishandle racks, and gather a topic on few members.

    Why it matters: members with client.rack get a wrong assignment, and with several topics one
    busy topic can end up on a few members, which looks like lag that nobody can explain.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade to 3.7.1 or later in the first bounce.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB207")
