"""Assignors by name for a group: Kafka's own, the coordinator's, or a custom one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rebal.groups.assignors import NAMES, Assignor, UnknownAssignorError, get
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from rebal.groups.model import GroupSnapshot, GroupType, RebalanceProtocol

CustomAssignors = Mapping[str, Assignor]
_PREFIX: Final = "consumer:"
SERVER_SIDE: Final = ("uniform", *(_PREFIX + name for name in SERVER_NAMES if name in NAMES))
"""What the server-side assignors are called where a client-side one has the same name."""


class Choice(NamedTuple):
    """An assignor and what it is; `name` is how it is called here."""

    name: str
    assignor: Assignor
    cooperative: bool
    server_side: bool = False
    custom: bool = False

    @property
    def protocol(self) -> RebalanceProtocol:
        """The rebalance protocol of members that have this assignor alone."""
        return RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER


def chosen(name: str, snapshot: GroupSnapshot, custom: CustomAssignors) -> Choice:
    """Return the assignor called `name`; in a KIP-848 group `range` means the coordinator's.

    Raises:
        UnknownAssignorError: nobody is called so; the message names those there are.
    """
    bare = name.removeprefix(_PREFIX)
    kip848 = snapshot.group.type is GroupType.CONSUMER
    if bare in SERVER_NAMES and (bare not in NAMES or name != bare or kip848):
        ids = {t.name: t.topic_id for t in snapshot.topics if t.topic_id is not None}
        shown = bare if kip848 or bare not in NAMES else name
        return Choice(shown, server_assignor(bare, ids), cooperative=True, server_side=True)
    if name in NAMES:
        return Choice(name, get(name), _cooperative(get(name)))
    if name in custom:
        return Choice(name, custom[name], _cooperative(custom[name]), custom=True)
    known = (*NAMES, *SERVER_SIDE, *sorted(custom))
    raise UnknownAssignorError(
        f"no assignor is called {name[:100]!r}; there are {', '.join(known)}."
    )


def _cooperative(assignor: Assignor) -> bool:
    return RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
