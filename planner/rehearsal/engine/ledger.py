"""Records of a group: rebalances, notes, and the owners of each partition over time, with the sums
of gaps and overlaps.
"""

from collections.abc import Collection, Mapping
from typing import Final

from rebal.groups.model import Record

TopicPartition = tuple[str, int]


class Rebalance(Record, frozen=True, kw_only=True):
    """One rebalance; times in seconds since the start, counts in partitions.

    `ended` is None where it has not ended. `members` were in its generation.
    """

    why: str
    began: float
    ended: float | None
    generation: int
    assignor: str | None
    members: int
    stopped: int
    moved: int


class Note(Record, frozen=True, kw_only=True):
    """Something that happened to a member (`who` empty: to the group)."""

    at: float
    who: str
    what: str
    detail: str = ""


class Ownership(Record, frozen=True, kw_only=True):
    """One partition's owners in order; `end` is None while it lasts. Spans may overlap."""

    owner: str
    start: float
    end: float | None


class Measures(Record, frozen=True, kw_only=True):
    """Cost of a story or of one part of it.

    `seconds` is how long it took, `unowned` how long partitions had no owner, `twice` how long they
    had two, `twice_past` the part of that in which one owner was past its session or poll timeout
    (it revokes its partitions at its next poll); all three in partition-seconds. `longest` is the
    longest gap of one partition in seconds. `rebalances` counts generations that members joined,
    `stopped` each time that a partition lost its owner, `moved` each time that it got another one.
    `rejected` counts members whose join the coordinator rejected or fenced.
    """

    seconds: float
    unowned: float
    longest: float
    twice: float
    twice_past: float
    rebalances: int
    stopped: int
    moved: int
    rejected: int


class Ledger:
    """Partitions by number, 0 to n-1, and their owners by name.

    Who owned what is kept only where `keep` asks for it: a large group has millions of changes.
    `stopped` counts how often partitions have lost their owner, `moved` how often they got another.
    """

    def __init__(self, numbers: Mapping[TopicPartition, int], *, keep: bool) -> None:
        self.numbers: Final = dict(numbers)
        size = len(self.numbers)
        self._owners: list[tuple[str, ...]] = [()] * size
        self._since = [0.0] * size
        self._last = [""] * size
        self._gaps = [0.0] * size
        self._longest = [0.0] * size
        self._longest_of_phase = 0.0
        self._past: set[str] = set()
        self._gone: set[int] = set()
        self._twice = self._twice_past = 0.0
        self.stopped = self.moved = 0
        self._keep = keep
        self._open: dict[tuple[int, str], float] = {}
        self._spans: dict[int, list[Ownership]] = {}

    def grow(self, topic: str, count: int, now: float) -> None:
        """Add partitions to a topic, which then has `count`; nobody owns them yet."""
        for partition in range(count):
            if (topic, partition) not in self.numbers:
                self.numbers[topic, partition] = len(self.numbers)
                self._owners.append(())
                self._since.append(now)
                self._last.append("")
                self._gaps.append(0.0)
                self._longest.append(0.0)

    def drop(self, topic: str, now: float) -> None:
        """Count no more of a deleted topic."""
        for pair, number in self.numbers.items():
            if pair[0] == topic:
                for owner in self._owners[number]:
                    self.release(owner, (number,), now)
                self._since[number] = float("inf")
                self._gone.add(number)

    def own(self, owner: str, partitions: Collection[int], now: float) -> None:
        """Record that `owner` begins to consume `partitions`."""
        owners, since, last = self._owners, self._since, self._last
        gaps, longest, alone = self._gaps, self._longest, (owner,)
        moved = 0
        partitions = self._there(partitions)
        for number in partitions:
            if owners[number]:
                self._close_overlap(number, now)
                owners[number] += alone
            else:
                gap = now - since[number]
                if gap > 0:
                    gaps[number] += gap
                    longest[number] = max(longest[number], gap)
                    self._longest_of_phase = max(self._longest_of_phase, gap)
                owners[number] = alone
            since[number] = now
            before = last[number]
            if before != owner:
                last[number] = owner
                if before:
                    moved += 1
        self.moved += moved
        if self._keep:
            self._open.update(dict.fromkeys(((number, owner) for number in partitions), now))

    def release(self, owner: str, partitions: Collection[int], now: float) -> None:
        """Record that `owner` stops consuming `partitions`."""
        owners, since = self._owners, self._since
        stopped = 0
        partitions = self._there(partitions)
        for number in partitions:
            if len(owners[number]) > 1:
                self._close_overlap(number, now)
                owners[number] = tuple(each for each in owners[number] if each != owner)
            else:
                owners[number] = ()
                stopped += 1
            since[number] = now
        self.stopped += stopped
        if self._keep:
            for number in partitions:
                start = self._open.pop((number, owner))
                if now > start:
                    held = Ownership(owner=owner, start=start, end=now)
                    self._spans.setdefault(number, []).append(held)

    def _there(self, partitions: Collection[int]) -> Collection[int]:
        """Return those whose topic has not been deleted."""
        if not self._gone:
            return partitions
        return [number for number in partitions if number not in self._gone]

    def past(self, owner: str, *, now: float, over: bool) -> None:
        """Learn that an owner is past its session or poll timeout, or (`over`) no longer."""
        for number, owners in enumerate(self._owners):
            if len(owners) > 1 and owner in owners:
                self._close_overlap(number, now)
                self._since[number] = now
        if over:
            self._past.discard(owner)
        else:
            self._past.add(owner)

    def owners(self) -> dict[TopicPartition, tuple[str, ...]]:
        """Return who owns each partition now: nobody, one, or several."""
        return {pair: self._owners[number] for pair, number in self.numbers.items()}

    def totals(self, now: float) -> Measures:
        """Return the sums up to now, open gaps and overlaps included; no rebalance is counted."""
        unowned, longest = sum(self._gaps), self._longest_of_phase
        twice, past = self._twice, self._twice_past
        for number, owners in enumerate(self._owners):
            open_for = now - self._since[number]
            if open_for <= 0:
                continue
            if not owners:
                unowned += open_for
                longest = max(longest, open_for)
            elif len(owners) > 1:
                twice += open_for
                past += open_for if self._past.intersection(owners) else 0.0
        return Measures(
            seconds=now,
            unowned=unowned,
            longest=longest,
            twice=twice,
            twice_past=past,
            rebalances=0,
            stopped=self.stopped,
            moved=self.moved,
            rejected=0,
        )

    def gaps(self, now: float) -> dict[TopicPartition, tuple[float, float]]:
        """Return how long each partition had no owner, in all and at the longest."""
        found = {}
        for pair, number in self.numbers.items():
            late = max(now - self._since[number], 0.0) if not self._owners[number] else 0.0
            found[pair] = self._gaps[number] + late, max(self._longest[number], late)
        return found

    def close(self) -> dict[int, list[Ownership]]:
        """Return the owners of each partition over time, those of now included."""
        spans = {number: list(found) for number, found in self._spans.items()}
        for (number, owner), start in self._open.items():
            spans.setdefault(number, []).append(Ownership(owner=owner, start=start, end=None))
        return spans

    def _close_overlap(self, number: int, now: float) -> None:
        owners = self._owners[number]
        if len(owners) > 1:
            lasted = now - self._since[number]
            self._twice += lasted
            if self._past.intersection(owners):
                self._twice_past += lasted

    def begin_phase(self, now: float) -> Measures:
        """Return the sums up to now, and measure the longest gap anew from here on."""
        totals = self.totals(now)
        self._longest_of_phase = 0.0
        return totals
