"""Brokers that speak Kafka's protocol and are not Apache Kafka (groups/data/brokers.yaml)."""

import re
from collections.abc import Collection

from rebal.groups.data import load_data
from rebal.groups.model import Record


class BrokerDifference(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Difference that a consumer group meets there, under one protocol and with one client family
    (None: under both, with each); `static` with static members alone.
    """

    what: str
    source: str
    protocol: str | None = None
    family: str | None = None
    static: bool = False


class OtherBrokers(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of such brokers; the comment at the top of the file explains the fields."""

    name: str
    hosts: str
    cluster_ids: str | None
    kip848: bool | None
    differs: tuple[BrokerDifference, ...]

    def under(
        self, protocol: str | None, families: Collection[str | None], *, static: bool
    ) -> list[str]:
        """Return what differs for a group of this protocol and these client families, each with its
        source; `static`: it has static members.
        """
        return [
            f"{one.what} ({one.source})"
            for one in self.differs
            if one.protocol in (None, protocol)
            and one.family in (None, *families)
            and (static or not one.static)
        ]


def other_brokers(servers: str | None, cluster_id: str | None = None) -> OtherBrokers | None:
    """Return the kind of brokers that a bootstrap server's name, or the cluster's id, shows."""
    hosts = [server.strip().rpartition(":")[0].lower() for server in (servers or "").split(",")]
    for kind in load_data("brokers.yaml", dict[str, tuple[OtherBrokers, ...]])["brokers"]:
        named = any(re.fullmatch(kind.hosts, host) for host in hosts)
        if named or (kind.cluster_ids and re.fullmatch(kind.cluster_ids, cluster_id or "")):
            return kind
    return None
