"""`roundrobin`: all partitions, sorted, go around all members; who did not subscribe is skipped."""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, groupby

from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.spec import TopicPartition


def assign_roundrobin(problem: Problem) -> list[list[TopicPartition]]:
    """For each member its partitions, in the order the leader returns them.

    Within neighbouring topics with the same subscribers the turn goes around these alone, so that
    each of n gets every n-th partition; only where it starts depends on the topics before.
    """
    order = problem.by_instance
    seat = [0] * len(order)
    for i, member in enumerate(order):
        seat[member] = i
    subscribers = problem.subscribers(order, once=True)
    result: list[list[TopicPartition]] = [[] for _ in order]
    turn = 0
    for _, topics in groupby(range(len(subscribers)), key=lambda topic: id(subscribers[topic])):
        some = list(topics)
        takers = subscribers[some[0]]
        pairs = list(chain.from_iterable(map(problem.pairs_of, some)))
        step = len(takers)
        first = bisect_left(takers, turn, key=seat.__getitem__) % step
        takers = takers[first:] + takers[:first]
        if len(pairs) <= step:
            for member, pair in zip(takers, pairs, strict=False):
                result[member].append(pair)
        else:
            for i, member in enumerate(takers):
                result[member] += pairs[i::step]
        turn = (seat[takers[(len(pairs) - 1) % step]] + 1) % len(order)
    return result
