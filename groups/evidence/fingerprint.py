"""What a subscription's own bytes tell of the client that made them.

The differences are those that real members show (Java 2.8.2 to 4.1.1, librdkafka 2.16.0,
kafka-python 3.0.12, franz-go 1.22.2, sarama 1.61.1, segmentio/kafka-go 0.4.51, kafkajs 2.2.4);
versions by KIP-429, KIP-881 and the clients' change logs.
"Only" means: of the clients in groups/data/clients.yaml whose bytes were seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rebal.groups.model import Evidence, Record, Source, Subscription
from rebal.groups.streams_releases import releases_of, user_data_of
from rebal.groups.wire.sticky import decode_sticky

COOPERATIVE_STICKY: Final = "cooperative-sticky"
_WITHOUT_USER_DATA: Final = frozenset({"range", "roundrobin"})
_JAVA_BY_VERSION: Final = {0: "< 2.4", 1: ">= 2.4, < 3.4", 3: ">= 3.4"}
_RACK_SINCE: Final = ">= 2.2"
# these write empty user data where the others write null
_NEVER_NULL: Final = frozenset({"librdkafka", "kafka-python", "kafkajs"})
# these write a null rack where librdkafka writes an empty one
_NEVER_EMPTY_RACK: Final = frozenset({"java", "streams", "franz-go"})


class Trace(Record, frozen=True, kw_only=True):
    """One thing that was seen in the bytes.

    `family` is the client that it proves, `not_families` those it speaks against, `ranges` the
    versions it leaves of a family, `between` the clients that it leaves where it proves no single
    one.
    """

    family: str | None = None
    not_families: frozenset[str] = frozenset()
    ranges: Mapping[str, str] = {}
    between: str | None = None
    evidence: Evidence

    def range_of(self, key: str) -> str | None:
        """The versions of the family `key` that this leaves; None when it says nothing of them."""
        return self.ranges.get(key)


def traces(subscription: Subscription | None, assignor: str | None) -> tuple[Trace, ...]:
    """All that one member's subscription for the elected `assignor` tells; strongest first."""
    found: list[Trace] = []
    if assignor == "stream":
        detail = "assignor stream is Kafka Streams' own"
        found.append(Trace(family="streams", evidence=_described(detail)))
        data = user_data_of(subscription)
        versions = releases_of(subscription) if subscription is not None else None
        if data is not None and versions is not None:
            detail = f"Streams' user data: version {data.version}, highest {data.latest}"
            found.append(Trace(ranges={"streams": versions}, evidence=_sent(detail)))
    elif assignor == "RoundRobinAssigner":
        detail = "assignor RoundRobinAssigner is kafkajs's own"
        found.append(Trace(family="kafkajs", evidence=_described(detail)))
    if subscription is None:
        return tuple(found)
    if subscription.version == 1 and subscription.owned_partitions is None:
        return (*found, _mislabelled())
    found += [trace for trace in (_rack(subscription), _user_data(subscription, assignor)) if trace]
    java = _JAVA_BY_VERSION.get(subscription.version)
    if java is not None:
        detail = f"subscription v{subscription.version}"
        found.append(Trace(ranges={"java": java, "streams": java}, evidence=_sent(detail)))
    return tuple(found)


def _mislabelled() -> Trace:
    return Trace(
        not_families=frozenset({"java", "streams", "librdkafka", "kafka-python", "franz-go"}),
        between="segmentio or sarama-cluster",
        evidence=_sent("a v1 subscription without owned partitions: v0 bytes marked as v1"),
    )


def _rack(subscription: Subscription) -> Trace | None:
    if subscription.version < 3 or subscription.rack_id != "":
        return None
    return Trace(
        family="librdkafka",
        not_families=_NEVER_EMPTY_RACK,
        ranges={"librdkafka": _RACK_SINCE},
        evidence=_sent("the rack is sent empty, not null, as only librdkafka does"),
    )


def _user_data(subscription: Subscription, assignor: str | None) -> Trace | None:
    data = subscription.user_data
    if assignor in _WITHOUT_USER_DATA:
        if data is None:
            return _null_user_data(subscription, assignor)
        if data == b"" and subscription.version >= 3 and subscription.rack_id:
            detail = f"the user data of {assignor} is sent empty, not null, in a v3 subscription"
            return Trace(
                family="librdkafka",
                not_families=_NEVER_EMPTY_RACK,
                ranges={"librdkafka": _RACK_SINCE},
                evidence=_sent(f"{detail}, as only librdkafka does"),
            )
        return None
    if assignor != COOPERATIVE_STICKY or not data or subscription.rack_id == "":
        return None
    if len(data) == 4 and data != bytes(4):
        return _generation_alone(subscription)
    listed = decode_sticky(data)
    if listed.readable and subscription.version >= 3 and subscription.rack_id is None:
        return Trace(
            family="franz-go",
            not_families=frozenset({"java", "kafka-python"}),
            evidence=_sent(
                "cooperative-sticky's user data begins with a list of partitions and the rack is "
                "null, as only franz-go sends"
            ),
        )
    return None


def _generation_alone(subscription: Subscription) -> Trace:
    """Java and sarama send nothing else as cooperative-sticky's user data; sarama writes no v3."""
    others = frozenset({"librdkafka", "kafka-python", "franz-go"})
    detail = "cooperative-sticky's user data is a generation alone, as Java"
    if subscription.version >= 3:
        return Trace(
            family="java", not_families=others | {"sarama"}, evidence=_sent(f"{detail} sends")
        )
    between = {1: "java >= 2.4, < 3.4 or sarama", 2: "sarama"}
    return Trace(
        not_families=others,
        between=between.get(subscription.version),
        evidence=_sent(f"{detail} and sarama send"),
    )


def _null_user_data(subscription: Subscription, assignor: str | None) -> Trace:
    between = {1: "java >= 2.4, < 3.4, franz-go or sarama", 3: "java >= 3.4 or franz-go"}
    return Trace(
        not_families=_NEVER_NULL,
        between=between.get(subscription.version),
        evidence=_sent(
            f"the user data of {assignor} is null in a v{subscription.version} subscription: not "
            "librdkafka, kafka-python or kafkajs"
        ),
    )


def _sent(detail: str) -> Evidence:
    return Evidence(source=Source.SUBSCRIPTION, detail=detail)


def _described(detail: str) -> Evidence:
    return Evidence(source=Source.DESCRIBE, detail=detail)
