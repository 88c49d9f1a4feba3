"""What a cluster says beside its groups, as a record that is kept: `SeenBrokers`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rebal.groups.model import Cluster, Record


class SeenBrokers(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a cluster said at a time of itself and of its topics.

    `topics` is how many partitions each has, `topic_names` are their names by topic id (KIP-516),
    `notes` say what could not be read.
    """

    at: datetime
    cluster: Cluster
    topics: Mapping[str, int] = {}
    topic_names: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
