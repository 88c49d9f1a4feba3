"""Records of a simulated group: rebalances, notes, and the owners of each partition over time."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from rebal.groups.model import Record

TopicPartition = tuple[str, int]
_NEVER: Final = math.inf


class Rebalance(Record, frozen=True, kw_only=True):
    """One rebalance; times in seconds since the start.

    `ended` is None if it has not ended. `members` is the number of members in its generation.
    `stopped` counts the times that a partition lost its owner since the rebalance before, `moved`
    the times that one got another owner.
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
    """An event of the member `who` (empty: of the group), `at` seconds since the start."""

    at: float
    who: str
    what: str
    detail: str = ""


class Ownership(Record, frozen=True, kw_only=True):
    """A span of time in which one member owns a partition; `end` is None while it lasts.

    Times are seconds since the start. Spans of different members may overlap.
    """

    owner: str
    start: float
    end: float | None


class Measures(Record, frozen=True, kw_only=True):
    """Cost of a rehearsal or of one of its phases.

    `seconds` is its duration. `unowned` is the time that partitions had no owner, `twice` the time
    that they had two, and `twice_past` the part of `twice` in which one owner was past its session
    or poll timeout (it revokes its partitions at its next poll); all three are in
    partition-seconds. `longest` is the longest gap of one partition in seconds. `rebalances` counts
    generations that members joined, `stopped` the times that a partition lost its owner, `moved`
    the times that one got another owner. `rejected` counts members that the coordinator rejected or
    fenced; rejections in a row count once.
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


class _OwnedPartition:
    """One partition: its owners, its last owner, and its gaps without an owner in seconds.

    `since` is the time of the last change of owners (infinite if the topic is deleted). `gaps` is
    the sum of the gaps that have ended, `longest` the longest of them.
    """

    __slots__ = ("gaps", "last", "longest", "owners", "since")

    def __init__(self, since: float) -> None:
        self.owners: tuple[str, ...] = ()
        self.since, self.last, self.gaps, self.longest = since, "", 0.0, 0.0


class Ledger:
    """Owners of all partitions over time: partitions by number, owners by name.

    `numbers` maps each (topic, partition) to its number in the ledger, from 0. The history of
    owners is recorded only with `keep`: a large group has millions of changes. `stopped` counts the
    times that a partition lost its owner, `moved` the times that one got another owner.
    """

    def __init__(self, pairs: Iterable[TopicPartition], *, keep: bool) -> None:
        self.numbers: Final = {pair: number for number, pair in enumerate(pairs)}
        self._partitions = [_OwnedPartition(0.0) for _ in self.numbers]
        self._past: set[str] = set()
        self._longest_since = self._twice = self._twice_past = 0.0
        self.stopped = self.moved = 0
        self._keep = keep
        self._open: dict[tuple[int, str], float] = {}
        self._spans: dict[int, list[Ownership]] = {}

    def grow(self, topic: str, count: int, now: float) -> None:
        """Add partitions to a topic, which then has `count`; nobody owns them yet."""
        for partition in range(count):
            if (topic, partition) not in self.numbers:
                self.numbers[topic, partition] = len(self.numbers)
                self._partitions.append(_OwnedPartition(now))

    def drop(self, topic: str, now: float) -> None:
        """Release the partitions of a deleted topic, and ignore them from now on."""
        for pair, number in self.numbers.items():
            if pair[0] == topic:
                share = self._partitions[number]
                for owner in share.owners:
                    self.release(owner, (number,), now)
                share.since = _NEVER

    def own(self, owner: str, partitions: Iterable[int], now: float) -> None:
        """Record that `owner` begins to consume `partitions`."""
        alone = (owner,)
        for number in partitions:
            share = self._partitions[number]
            if share.since == _NEVER:
                continue
            if share.owners:
                self._close_overlap(share, now)
                share.owners += alone
            else:
                gap = now - share.since
                if gap > 0:
                    share.gaps += gap
                    share.longest = max(share.longest, gap)
                    self._longest_since = max(self._longest_since, gap)
                share.owners = alone
            share.since = now
            if share.last != owner:
                self.moved += bool(share.last)
                share.last = owner
            if self._keep:
                self._open[number, owner] = now

    def release(self, owner: str, partitions: Iterable[int], now: float) -> None:
        """Record that `owner` stops consuming `partitions`."""
        for number in partitions:
            share = self._partitions[number]
            if share.since == _NEVER:
                continue
            if len(share.owners) > 1:
                self._close_overlap(share, now)
                share.owners = tuple(each for each in share.owners if each != owner)
            else:
                share.owners = ()
                self.stopped += 1
            share.since = now
            start = self._open.pop((number, owner)) if self._keep else now
            if now > start:
                self._spans.setdefault(number, []).append(
                    Ownership(owner=owner, start=start, end=now)
                )

    def mark_past_timeout(self, owner: str, *, now: float, over: bool) -> None:
        """Record that `owner` is past its session or poll timeout.

        With `over`, record that it is not any more, because it has dropped its partitions.
        """
        for share in self._partitions:
            if len(share.owners) > 1 and owner in share.owners:
                self._close_overlap(share, now)
                share.since = now
        if over:
            self._past.discard(owner)
        else:
            self._past.add(owner)

    def owners(self) -> dict[TopicPartition, tuple[str, ...]]:
        """Return who owns each partition now: nobody, one, or several."""
        return {pair: self._partitions[number].owners for pair, number in self.numbers.items()}

    def totals(self, now: float) -> Measures:
        """Return the measures up to the time `now`, with current gaps and overlaps.

        `longest` is the longest gap that has ended since the last call or still lasts. `rebalances`
        and `rejected` are 0, because the ledger does not record them.
        """
        unowned, longest = sum(share.gaps for share in self._partitions), self._longest_since
        twice, past, self._longest_since = self._twice, self._twice_past, 0.0
        for share in self._partitions:
            open_for = now - share.since
            if open_for <= 0:
                continue
            if not share.owners:
                unowned += open_for
                longest = max(longest, open_for)
            elif len(share.owners) > 1:
                twice += open_for
                past += open_for if self._past.intersection(share.owners) else 0.0
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

    def stories(
        self, now: float
    ) -> Iterator[tuple[TopicPartition, float, float, tuple[Ownership, ...]]]:
        """Yield (partition, seconds without an owner, longest gap in seconds, owners over time).

        Current gaps and owners are included.
        """
        spans = {number: list(found) for number, found in self._spans.items()}
        for (number, owner), start in self._open.items():
            spans.setdefault(number, []).append(Ownership(owner=owner, start=start, end=None))
        for pair, number in self.numbers.items():
            share = self._partitions[number]
            late = 0.0 if share.owners else max(now - share.since, 0.0)
            owners = tuple(spans.get(number, ()))
            yield pair, share.gaps + late, max(share.longest, late), owners

    def _close_overlap(self, share: _OwnedPartition, now: float) -> None:
        if len(share.owners) > 1:
            lasted = now - share.since
            self._twice += lasted
            if self._past.intersection(share.owners):
                self._twice_past += lasted
