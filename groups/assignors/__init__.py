"""The partition assignors, with exactly the Java client's results.

>>> from rebal.groups.assignors import assign
>>> from rebal.groups.assignors.spec import Spec, SpecMember
>>> a = SpecMember(member_id="a", topics=("orders",))
>>> b = SpecMember(member_id="b", topics=("orders",))
>>> assign("range", Spec(members=(a, b), partitions={"orders": 3}))
{'a': [('orders', 0), ('orders', 1)], 'b': [('orders', 2)]}
"""

from typing import Final

from rebal.groups.assignors.client.kafka import ASSIGNORS
from rebal.groups.assignors.spec import (
    Assignment,
    Assignor,
    Owned,
    Spec,
    SpecMember,
    TopicPartition,
)
from rebal.groups.errors import LeaderWouldFail, UnknownAssignorError

__all__ = (
    "NAMES",
    "Assignment",
    "Assignor",
    "LeaderWouldFail",
    "Owned",
    "Spec",
    "SpecMember",
    "TopicPartition",
    "UnknownAssignorError",
    "assign",
    "get",
)

NAMES: Final = tuple(ASSIGNORS)


def get(name: str) -> Assignor:
    """Return Kafka's client-side assignor with the name `name`.

    Raises:
        UnknownAssignorError: no assignor has that name; the message lists the known names.
    """
    if name not in ASSIGNORS:
        raise UnknownAssignorError(
            f"no assignor is called {name[:100]!r}; there are {', '.join(NAMES)}."
        )
    return ASSIGNORS[name]


def assign(name: str, spec: Spec) -> Assignment:
    """Return the assignment that the group leader computes: member id → `(topic, partition)` list.

    The lists are in the Java leader's order.

    Raises:
        UnknownAssignorError: no assignor has that name.
        LeaderWouldFail: the real leader throws or never ends on this input.
    """
    return get(name).assign(spec)
