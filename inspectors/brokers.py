"""What a cluster says beside its groups, as a record that is kept: `SeenBrokers`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rebal.groups.model import Cluster, Record


class SeenBrokers(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a cluster said at a time of itself and of how many partitions its topics have.

    `notes` say what could not be read.
    """

    at: datetime
    cluster: Cluster
    topics: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()
