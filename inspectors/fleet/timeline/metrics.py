"""KIP-429's rebalance metrics of one group, from the rebalances that were seen.

They count rebalances of the group, not of one client; a generation that leaves the group empty is
nobody's rebalance and is not counted.
"""

from __future__ import annotations


class Metrics:
    """Sums over one group's rebalances; latencies in milliseconds, times in microseconds."""

    def __init__(self) -> None:
        self.total = 0
        self.failures = 0
        self.refused = 0
        self.timed = 0
        self.latency_total = 0.0
        self.latency_max = 0.0
        self.last_at: int | None = None

    def completed(self, at: int, latency_ms: float | None) -> None:
        """A rebalance that was completed at `at`."""
        self.total += 1
        self.last_at = at if self.last_at is None else max(at, self.last_at)
        if latency_ms is not None:
            self.timed += 1
            self.latency_total += latency_ms
            self.latency_max = max(self.latency_max, latency_ms)

    def failed(self) -> None:
        """A rebalance that was begun and not completed."""
        self.failures += 1

    def columns(
        self, log: bool
    ) -> tuple[int, float | None, float | None, float | None, int, int | None, int | None]:
        """The columns from `rebalance_total` to `refused_total`.

        `log` is whether the request log was read: only it shows refusals.
        """
        timed = self.timed > 0
        return (
            self.total,
            self.latency_total / self.timed if timed else None,
            self.latency_max if timed else None,
            self.latency_total if timed else None,
            self.failures,
            self.last_at,
            self.refused if log else None,
        )
