"""The server's `range`: every topic in runs, members always in one order, nothing is remembered.

The same arithmetic as the client-side `range`, without racks: a group that changes from one to the
other keeps its assignment.
"""

from __future__ import annotations

from rebal.groups.assignors.server.server import ServerProblem, Targets


def assign_range(problem: ServerProblem) -> Targets:
    """For each member its target."""
    takers: list[list[int]] = [[] for _ in problem.topics]
    for member in problem.by_instance():
        for topic in problem.subscribed[member]:
            takers[topic].append(member)
    result: list[list[int]] = [[] for _ in problem.members]
    for topic, members in enumerate(takers):
        base, more = divmod(problem.counts[topic], len(members))
        first, start = problem.starts[topic], 0
        for place, member in enumerate(members):
            stop = start + base + (place < more)
            result[member] += range(first + start, first + stop)
            start = stop
    return Targets(result)
