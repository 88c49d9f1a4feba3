"""Facts about a cluster's brokers: coordinator kind, group settings, `ClusterReading`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from rebal.groups.model import Cluster, CoordinatorKind, Record

_SETTINGS: Final = frozenset(
    {
        "process.roles",
        "inter.broker.protocol.version",
        "group.streams.max.size",
        "group.streams.initial.rebalance.delay.ms",
    }
)


def coordinator_kind(cluster: Cluster) -> CoordinatorKind:
    """Return the implementation of the brokers' group coordinator: Java, Scala or unknown.

    It is Java since Kafka 4.0, Scala before 3.7, and in 3.7 to 3.9 the broker settings decide. It
    is unknown for Redpanda, and if the version or those settings were not read.
    """
    release = release_of(cluster.version) or ()
    protocols = cluster.settings.get("group.coordinator.rebalance.protocols")
    enabled = cluster.settings.get("group.coordinator.new.enable") == "true"
    rows = (
        (not release, CoordinatorKind.UNKNOWN),
        ((cluster.cluster_id or "").startswith("redpanda."), CoordinatorKind.UNKNOWN),
        (release >= (4, 0), CoordinatorKind.JAVA),
        (release < (3, 7), CoordinatorKind.SCALA),
        (protocols is None, CoordinatorKind.UNKNOWN),
        (enabled or "consumer" in (protocols or ""), CoordinatorKind.JAVA),
        (True, CoordinatorKind.SCALA),
    )
    return next(kind for holds, kind in rows if holds)


def group_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the broker settings that a plan needs: the group settings and the broker's role.

    `group.share.*` and most of `group.streams.*` are left out.
    """
    return {
        name: value
        for name, value in settings.items()
        if name in _SETTINGS
        or (name.startswith("group.") and not name.startswith(("group.share.", "group.streams.")))
    }


def release_of(version: str | None) -> tuple[int, ...] | None:
    """Return a broker version as numbers: (4, 2) for `4.2 or later`; None if it is not known."""
    return tuple(int(number) for number in version.split()[0].split(".")) if version else None


class ClusterReading(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The brokers and topics of a cluster at the time `at`, by this machine's clock.

    `topics` maps topic → number of partitions, and `topic_names` maps topic id → topic name
    (KIP-516). `ends` maps topic → log end offset of each partition, in partition order (None: not
    known). `notes` are sentences about settings or offsets that could not be read.
    """

    at: datetime
    cluster: Cluster
    topics: Mapping[str, int] = {}
    topic_names: Mapping[str, str] = {}
    ends: Mapping[str, tuple[int | None, ...]] = {}
    notes: tuple[str, ...] = ()
