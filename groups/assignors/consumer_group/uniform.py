"""The server's `uniform`: counts as equal as they can be, and nothing moves without need.

Where all subscribe to the same topics, each member keeps what fits its quota and what is left
fills the others up, member by member. Otherwise (see `mixed`) topics are dealt and levelled.
"""

from __future__ import annotations

from collections import deque

from rebal.groups.assignors.consumer_group.mixed import assign_mixed
from rebal.groups.assignors.consumer_group.server import Lists, ServerProblem


def assign_uniform(problem: ServerProblem) -> Lists:
    """For each member its target."""
    return _fill_quotas(problem) if problem.uniform else assign_mixed(problem)


def _fill_quotas(problem: ServerProblem) -> Lists:
    """Members in the order of the table, each up to its share, or one more while some are over.

    One more goes to a member that owns it already, or when all that come after need it too.
    """
    members = len(problem.members)
    share, over = divmod(sum(problem.counts), members)
    taken: list[set[int]] = [set() for _ in problem.topics]
    given_up: list[tuple[int, int]] = []
    result: Lists = []
    room: list[int] = []
    for place, target in enumerate(problem.targets):
        one_more = over > 0
        left = share + one_more
        kept: list[tuple[int, int]] = []
        for topic, partitions in target:
            taken[topic].update(partitions)
            fits, rest = partitions, partitions[:0]
            if len(partitions) > left:
                ordered = problem.set_order(partitions)
                fits, rest = ordered[:left], ordered[left:]
            left -= len(fits)
            kept += ((topic, partition) for partition in fits)
            given_up += ((topic, partition) for partition in rest)
        if left > 0 and one_more and members - place > over:
            left -= 1
            one_more = False
        over -= one_more
        result.append(kept)
        room.append(left)
    free = deque(
        (topic, partition)
        for topic, count in enumerate(problem.counts)
        for partition in range(count)
        if partition not in taken[topic]
    )
    free += given_up
    for kept, left in zip(result, room, strict=True):
        for _ in range(min(left, len(free))):
            kept.append(free.popleft())
    return result
