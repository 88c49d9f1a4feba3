"""What a broker is: its version, its kind of group coordinator, its group-related settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka.protocol.broker_version_data import BrokerVersionData

from rebal.groups.model import Cluster, CoordinatorKind
from rebal.inspectors.kafka.wire import Connection

# The newest metadata.version of each release (Kafka's MetadataVersion.LATEST_PRODUCTION).
_BY_METADATA_VERSION: Final = {
    7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1",
}  # fmt: skip
_OTHER_GROUPS: Final = ("group.share.", "group.streams.")
_SETTINGS: Final = frozenset({"process.roles", "inter.broker.protocol.version"})


def broker_version(connection: Connection) -> str | None:
    """The broker's release as far as its protocol tells it, e.g. `4.1` or `4.2 or later`.

    A KRaft broker names the newest metadata.version it knows, and each release has its own; else
    it is the newest release whose requests it all speaks (a release that added none looks like
    the one before it, hence `or later`).
    """
    known = connection.supported_features.get("metadata.version")
    if known in _BY_METADATA_VERSION:
        return _BY_METADATA_VERSION[known]
    numbers = BrokerVersionData(api_versions=connection.versions).broker_version
    return f"{'.'.join(map(str, numbers))} or later" if numbers else None


def coordinator_kind(cluster: Cluster) -> CoordinatorKind:
    """Which coordinator elects: the Java one since 4.0, and in 3.7..3.9 where it is switched on."""
    if (cluster.cluster_id or "").startswith("redpanda."):
        return CoordinatorKind.UNKNOWN
    release = _release(cluster.version)
    if release is None:
        return CoordinatorKind.UNKNOWN
    if release >= (4, 0):
        return CoordinatorKind.JAVA
    if release < (3, 7):
        return CoordinatorKind.SCALA
    protocols = cluster.settings.get("group.coordinator.rebalance.protocols")
    if protocols is None:
        return CoordinatorKind.UNKNOWN
    if cluster.settings.get("group.coordinator.new.enable") == "true" or "consumer" in protocols:
        return CoordinatorKind.JAVA
    return CoordinatorKind.SCALA


def group_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that matter to a plan: those of groups, and what tells how brokers are run."""
    return {
        name: value
        for name, value in settings.items()
        if (name.startswith("group.") and not name.startswith(_OTHER_GROUPS)) or name in _SETTINGS
    }


def _release(version: str | None) -> tuple[int, ...] | None:
    if not version:
        return None
    return tuple(int(number) for number in version.split()[0].split("."))
