"""The state that all groups of one scan share: rows, protocols, topics' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebal.inspectors.fleet.timeline.protocol import Protocols
from rebal.inspectors.fleet.timeline.rows import Rows


class Topics:
    """Topics' names by their ids; `unnamed` are ids whose name was asked for in vain."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.unnamed: set[str] = set()

    def name(self, topic_id: str, learned: Mapping[str, str]) -> str:
        """Return the name of the topic; its id where no record of the cluster or group has it."""
        name = self._names.get(topic_id) or learned.get(topic_id)
        if name is None:
            self.unnamed.add(topic_id)
        return name or topic_id


class Shared:
    """Parts that all groups of one scan share.

    `breaks` says where records may be missing, by partition.
    """

    def __init__(
        self,
        topic_names: Mapping[str, str] | None = None,
        breaks: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.rows = Rows()
        self.protocols = Protocols()
        self.topics = Topics(topic_names or {})
        self.breaks = breaks or {}
