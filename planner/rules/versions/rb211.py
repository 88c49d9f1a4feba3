"""RB211: franz-go releases with faults in mixed groups."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults, cooperates


@rule(
    "RB211",
    Severity.WARN,
    "This franz-go version has known faults while a group changes its protocol",
    reference="franz-go: CHANGELOG.md (v1.13.2, v1.17.0, v1.21.6); twmb/franz-go#384, #1367",
)
def franz_go_faults(context: Context) -> Iterator[Finding]:
    """franz-go follows the vote of the group, and these releases do it wrongly in some step.

    Why it matters: a member that is on a mixed list changes its protocol in the middle of its
    life, at the moment the vote changes. These releases get stuck there, or keep what they must
    give up. A vote that flips back to an eager assignor can give records twice in any release.

    How to find out: the client's version stands in the broker's request log and in its own
    log at start (--request-log, --client-log).

    How to fix it: upgrade to 1.21.6 or later before the roll-out begins, and do not let the
    vote flip back: the target first in every list (RB107).

    It speaks in plans that lead to COOPERATIVE and have something left to do, and only of members
    whose version is exactly known; of all others the plan says that it was not checked.
    """
    if cooperates(context):
        yield from client_faults(context, "RB211")
