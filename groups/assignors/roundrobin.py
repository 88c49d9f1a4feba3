"""`roundrobin`: all partitions, sorted, go around all members; who did not subscribe is skipped."""

from __future__ import annotations

from bisect import bisect_left

from rebal.groups.assignors.problem import Problem, Run


def assign_roundrobin(problem: Problem) -> list[list[Run]]:
    """For each member its runs, in the order the leader returns them.

    Within a topic the turn goes around its subscribers alone, so that each of them gets every
    n-th partition; only where a topic starts depends on the one before.
    """
    seats: list[list[int]] = [[] for _ in problem.topics]
    for seat, member in enumerate(problem.by_instance):
        for topic in dict.fromkeys(problem.subscribed[member]):
            seats[topic].append(seat)
    result: list[list[Run]] = [[] for _ in problem.members]
    turn = 0
    for topic, takers in enumerate(seats):
        count, step = problem.counts[topic], len(takers)
        first = bisect_left(takers, turn)
        for i in range(min(count, step)):
            member = problem.by_instance[takers[(first + i) % step]]
            result[member].append((topic, range(i, count, step)))
        turn = (takers[(first + count - 1) % step] + 1) % len(problem.members)
    return result
