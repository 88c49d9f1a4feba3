"""Subscriptions by pattern: which topics they match, and when whom a new topic reaches.

A client with the classic protocol matches its pattern against its own metadata, which it reads
again within metadata.max.age.ms (ConsumerCoordinator.maybeUpdateSubscriptionMetadata). The brokers
match the SubscriptionPattern of a KIP-848 member, at a heartbeat of the group and at most once in
10 s (GroupMetadataManager.maybeUpdateRegularExpressions).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

# REGEX_BATCH_REFRESH_MIN_INTERVAL_MS of the brokers, in seconds.
AT_MOST_EVERY: Final = 10.0


def matching(pattern: str, topics: Collection[str]) -> tuple[str, ...]:
    """Return the topics whose whole name matches, sorted; patterns are read as Python's."""
    compiled = re.compile(pattern)
    return tuple(sorted(topic for topic in topics if compiled.fullmatch(topic)))


def readable(pattern: str) -> bool:
    """Return whether Python reads this pattern; Java's and RE2/J's have more of their own."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


class Resolutions:
    """Topics by pattern, as a KIP-848 coordinator resolved them last, at `at` seconds.

    `due` says that topics were created since.
    """

    def __init__(self) -> None:
        self.at = -AT_MOST_EVERY
        self.due = self.under_way = False
        self._topics: dict[str, tuple[str, ...]] = {}

    def of(self, pattern: str) -> tuple[str, ...]:
        """Return the topics of a pattern; none while it is not resolved."""
        return self._topics.get(pattern, ())

    def seat(self, pattern: str, topics: tuple[str, ...]) -> None:
        """Begin with a pattern that is resolved."""
        self._topics[pattern] = topics

    def needed(self, patterns: Collection[str]) -> bool:
        """Return whether a heartbeat has these resolved as soon as it may."""
        return bool(patterns) and (self.due or not self._topics.keys() >= set(patterns))

    def resolve(self, patterns: Collection[str], topics: Collection[str], now: float) -> bool:
        """Resolve all of these, and return whether one matches other topics than before."""
        before, self._topics = self._topics, {each: matching(each, topics) for each in patterns}
        self.at, self.due = now, False
        return any(before.get(each, ()) != found for each, found in self._topics.items())
