"""KIP-848's server-side assignors, which run in the group coordinator of Kafka 4.x.

Start at `server_assignor`. Each input member is a `SpecMember` whose `owned` is its target
assignment.
"""

from collections.abc import Mapping
from typing import Final

from rebal.groups.assignors.server.server import ServerAssignor, Undecided, assign_range
from rebal.groups.assignors.server.uniform import assign_uniform

__all__ = ("SERVER_NAMES", "ServerAssignor", "Undecided", "server_assignor")

SERVER_NAMES: Final = ("uniform", "range")
"""Values of `group.remote.assignor`; the first is the broker's default (KIP-848)."""


def server_assignor(name: str, topic_ids: Mapping[str, str] | None = None) -> ServerAssignor:
    """Return the server-side assignor called `name`, one of `SERVER_NAMES`.

    `topic_ids` are topic name → id as Kafka prints it (22 characters of base64). The coordinator
    walks topics in an order that follows from their ids; topics without an id come last, in the
    order of their names.
    """
    return ServerAssignor(
        name, {"uniform": assign_uniform, "range": assign_range}[name], topic_ids or {}
    )
