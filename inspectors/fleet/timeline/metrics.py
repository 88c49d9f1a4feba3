"""KIP-429's rebalance metrics of one group, from the rebalances that were seen.

They count rebalances of the group, not of one client; a generation that leaves the group empty is
nobody's rebalance and is not counted.
"""

from __future__ import annotations

from msgspec import Struct


class Metrics(Struct, array_like=True):
    """Sums over one group's rebalances; latencies in milliseconds, times in microseconds."""

    total: int = 0
    failures: int = 0
    refused: int = 0
    timed: int = 0
    latency_total: float = 0.0
    latency_max: float = 0.0
    last_at: int | None = None

    def completed(self, at: int, latency_ms: float | None) -> None:
        """A rebalance that was completed at `at`."""
        self.total += 1
        self.last_at = at if self.last_at is None else max(at, self.last_at)
        if latency_ms is not None:
            self.timed += 1
            self.latency_total += latency_ms
            self.latency_max = max(self.latency_max, latency_ms)

    def columns(self, log: bool) -> dict[str, int | float | None]:
        """The columns from `rebalance_total` to `refused_total`, by name.

        `log` is whether the request log was read: only it shows refusals.
        """
        timed = self.timed > 0
        return {
            "rebalance_total": self.total,
            "rebalance_latency_avg_ms": self.latency_total / self.timed if timed else None,
            "rebalance_latency_max_ms": self.latency_max if timed else None,
            "rebalance_latency_total_ms": self.latency_total if timed else None,
            "failed_rebalance_total": self.failures,
            "last_rebalance_at": self.last_at,
            "refused_total": self.refused if log else None,
        }
