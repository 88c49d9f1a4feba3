"""What all groups of one scan share: rows, decoded values, protocols, topics' names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rebal.inspectors.fleet.timeline.protocol import Protocols
from rebal.inspectors.fleet.timeline.reader import ValueReader
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.values import Values


class Topics:
    """Topics' names by their ids; `unnamed` are ids whose name was asked for in vain."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.unnamed: set[str] = set()

    def name(self, topic_id: str, learned: Mapping[str, str]) -> str:
        """The name of the topic; its id where no record of the cluster or the group told it."""
        name = self._names.get(topic_id) or learned.get(topic_id)
        if name is None:
            self.unnamed.add(topic_id)
        return name or topic_id


class Shared:
    """Parts that all groups of one scan share.

    `breaks` says where records may be missing, by partition; `recorded` are the groups that have
    records.
    """

    def __init__(
        self,
        topic_names: Mapping[str, str] | None = None,
        breaks: Mapping[int, Sequence[int]] | None = None,
        recorded: Collection[str] = (),
    ) -> None:
        self.recorded = recorded
        self.rows = Rows()
        self.values = Values()
        self.reader = ValueReader(self.values)
        self.protocols = Protocols()
        self.topics = Topics(topic_names or {})
        self.breaks = breaks or {}
