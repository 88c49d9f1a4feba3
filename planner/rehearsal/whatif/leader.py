"""Computing time of the leader's client where members subscribe to different topics.

The general algorithm of `sticky` and `cooperative-sticky` looks at all partitions again and again:
its time grows with the square of their number, and hardly with the number of members. While the
leader computes, the group waits; past the rebalance timeout its members are evicted.

The figures are measured, with kafka-clients 4.1.1 on OpenJDK 17 on one core of a small server, on
groups whose members each subscribe to a random half of the topics (bench/java/AssignorCase.java):

    partitions   members   topics   seconds (all start; one member joins)
         5,000        50      100     1.6;   2.4
         5,000       100      100     2.5;   4.3
        10,000        50      100     8.2;   7.9
        10,000       100       50    11.2;   7.9
        10,000       100      100     4.1;   5.6
        10,000       100      200     6.8;  13.4
        10,000       200      100     3.4;   7.1
        20,000       100      100    17.4;  26.7
        20,000       200      100    27.0;  23.1
        20,000       200      200     9.3
        40,000       100      100    82.6

All lie between `_LEAST` and `_MOST` seconds a squared partition, which are a factor of nine apart:
on a server that is shared the same case takes three times as long in one hour as in another. Other
subscriptions can lie outside, and a group that is balanced already takes next to nothing: it is an
estimate of the order of magnitude, no promise.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.assignors import Spec
from rebal.groups.model import Record
from rebal.planner.rehearsal.spec import wanted

_LEAST: Final = 2e-8
_MOST: Final = 1.8e-7
_WORTH_SAYING: Final = 5.0
_NEAR: Final = 0.5
DEFAULT_TIMEOUT: Final = 300.0
"""Seconds: a Java consumer's rebalance timeout is its `max.poll.interval.ms`, by default 5 min."""


class LeaderTime(Record, frozen=True, kw_only=True):
    """Range of the leader's computing time in seconds; `near_timeout` from half of it on."""

    at_least: float
    at_most: float
    rebalance_timeout: float
    near_timeout: bool


def leader_time(spec: Spec, assignor: str, rebalance_timeout: float) -> LeaderTime | None:
    """Return the estimate for one rebalance of this group; None where it is not worth a word."""
    if assignor not in ("sticky", "cooperative-sticky"):
        return None
    subscriptions = {member.topics for member in spec.members}
    if len(set(map(frozenset, subscriptions))) < 2:
        return None
    partitions = sum(spec.partitions.get(topic, 0) for topic in wanted(subscriptions))
    most = _MOST * partitions**2
    if most < _WORTH_SAYING:
        return None
    return LeaderTime(
        at_least=round(_LEAST * partitions**2, 1),
        at_most=round(most, 1),
        rebalance_timeout=rebalance_timeout,
        near_timeout=most >= _NEAR * rebalance_timeout,
    )
