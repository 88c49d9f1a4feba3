"""Whole processes side by side: interleaved runs, medians, spread, and the ratio of medians."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison; times in seconds, `limit` is the ratio that must not be passed."""

    case: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    peer_name: str
    limit: float

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.peer)

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit

    def text(self) -> str:
        def spread(times: Sequence[float]) -> str:
            return f"{statistics.median(times):.3f} s ({min(times):.3f}–{max(times):.3f})"

        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"{self.case}: rebal {spread(self.ours)}; {self.peer_name} {spread(self.peer)}; "
            f"ratio {self.ratio:.2f}, limit {self.limit:.2f}: {verdict}"
        )


def wall(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Seconds from start to end of one process, which must exit 0."""
    # Python's own cache of compiled modules is part of any installation: let both sides have it.
    given = {k: v for k, v in (env or os.environ).items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env=given, check=False)
    taken = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited {done.returncode}: {done.stderr[-2000:]!r}")
    return taken


def side_by_side(
    case: str,
    ours: Callable[[], float],
    peer: Callable[[], float],
    *,
    peer_name: str,
    limit: float,
    runs: int = 5,
) -> Row:
    """One warm-up of each, then `runs` of each in turn, so that both meet the same machine."""
    ours(), peer()
    pairs = [(ours(), peer()) for _ in range(runs)]
    return Row(case, tuple(a for a, _ in pairs), tuple(b for _, b in pairs), peer_name, limit)
