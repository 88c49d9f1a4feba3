"""RB411: librdkafka releases whose KIP-848 support is not finished."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.kip848.online import moving_up
from rebal.planner.rules.registry import rule
from rebal.planner.versions import client_faults


@rule(
    "RB411",
    Severity.WARN,
    "This librdkafka version is early for KIP-848",
    reference="librdkafka: CHANGELOG.md (2.12.0, 2.15.0); KIP-1274",
)
def early_librdkafka(context: Context) -> Iterator[Finding]:
    """librdkafka has spoken KIP-848 for production since 2.12.0, and mended it since.

    Why it matters: before 2.12.0 it is a preview that is not compatible with what brokers do now.
    Before 2.15.0 a consumer that exceeded max.poll.interval.ms cannot come back: a fatal error.

    How to find out: the version of librdkafka itself, not of its binding: the request log shows
    both (2.16.1-rdkafka-2.16.0). A version that is not known gives no warning.

    How to fix it: use 2.15.0 or later. There is time: by KIP-1274 Kafka 5.0 makes consumer the
    default, and only the clients of 6.0 drop the classic protocol.
    """
    if moving_up(context):
        yield from client_faults(context, "RB411")
