"""How many facts of a capture's truth the tables tell: `Tally`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BY_LOG = (
    "ordered list of a run",
    "software of a run",
    "version of a run",
    "refused run",
    "refused joins",
    "refused_total",
    "rebalance protocol of a generation",
)
BY_TOPIC = (
    "stop",
    "crash",
    "group deleted",
    "partitions that a member printed",
    "state of a described group",
    "members of a described group",
    "assignor of a described group",
)
BY_EITHER = (
    "generation and its member count",
    "rebalance that was not completed",
    "members of a generation run",
    "members are all there",
)
"""What a source can always show, and so must."""


class Tally:
    """Matched, expected and unknown by kind of fact; what is wrong is kept word for word."""

    def __init__(self, mode: str, folder: Path) -> None:
        self.mode = mode
        self.folder = folder
        self.matched: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()
        self.unknown: dict[str, list[object]] = {}
        self.wrong: list[str] = []

    @property
    def has_log(self) -> bool:
        return "log" in self.mode

    @property
    def has_topic(self) -> bool:
        return "topic" in self.mode

    def is_right(self, kind: str, what: object, found: object, wanted: object) -> None:
        """None found is unknown."""
        self.expected[kind] += 1
        if found is None:
            self.unknown.setdefault(kind, []).append(what)
        elif found == wanted:
            self.matched[kind] += 1
        else:
            self.wrong.append(f"{kind}: {what}: {found!r}, really {wanted!r}")

    def check(self) -> None:
        """Nothing is wrong, and what the source can show is not unknown either."""
        assert not self.wrong, "\n".join(self.wrong)
        kinds = [*BY_EITHER, *(BY_LOG if self.has_log else ())]
        kinds += BY_TOPIC if self.has_topic else ()
        missing = {kind: self.unknown[kind] for kind in kinds if kind in self.unknown}
        assert not missing, missing
        assert self.expected["members of a generation run"]

    def lines(self) -> Iterator[str]:
        yield f"\n{self.folder.name}, {self.mode}:"
        for kind in self.expected:
            unknown = f", {len(self.unknown[kind])} unknown" if kind in self.unknown else ""
            yield f"  {kind:34} {self.matched[kind]} / {self.expected[kind]}{unknown}"
