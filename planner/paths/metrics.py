"""What a person watches in the members themselves, beside each gate (KIP-429, "Metrics")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rebal.planner.context import Context

_KIP_429: Final = "rebalance-total, failed-rebalance-total and last-rebalance-seconds-ago"
_JAVA: Final = ("java", "streams")


def metrics_lines(context: Context) -> Iterator[str]:
    """Lines for a gate, by the clients that are in the group; Java's for a member not known."""
    families = {facts.family for facts in context.members} or {None}
    if "connect" in families or context.group.protocol_type == "connect":
        yield (
            f"watch in each restarted worker: {_KIP_429} (connect-coordinator-metrics, KIP-429), "
            "and connect-protocol (connect-worker-rebalance-metrics)"
        )
        return
    if families & {*_JAVA, None}:
        yield f"watch in each restarted client: {_KIP_429} (consumer-coordinator-metrics, KIP-429)"
    if "librdkafka" in families:
        yield (
            "watch in each restarted librdkafka client, which has no metrics of KIP-429: "
            "rebalance_cnt and rebalance_age (cgrp in its statistics, statistics.interval.ms)"
        )
    others = sorted(filter(None, families - {*_JAVA, "librdkafka"}))
    if others:
        yield (
            f"{_KIP_429} (KIP-429) are of Java's clients: watch what {' and '.join(others)} counts "
            "of its rebalances, or the join lines of --request-log"
        )
