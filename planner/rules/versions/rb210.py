"""RB210: librdkafka releases with faults in cooperative rebalancing."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB210",
    Severity.WARN,
    "This librdkafka version has known faults in cooperative rebalancing",
    reference="librdkafka: CHANGELOG.md (1.7.0, 2.2.0, 2.4.0, 2.6.1, 2.10.0); #3306, #4252, "
    "#4528, #4636, #4783, #4908",
)
def librdkafka_faults(context: Context) -> Iterator[Finding]:
    """librdkafka has had cooperative-sticky since 1.6.0, and mended it until 2.10.0.

    Why it matters: a hang on close makes each restart wait for the session timeout; an endless
    rebalance or a lost assignment stops a member while its process looks alive.

    How to find out: the version of librdkafka itself, not of its binding: the request log shows
    both (2.16.1-rdkafka-2.16.0).

    How to fix it: use 2.10.0 or later before the group changes to cooperative-sticky.

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB210")
