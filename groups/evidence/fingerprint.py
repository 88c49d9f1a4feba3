"""Client software, guessed from what DescribeGroups shows: bytes, elected assignor and client id.

The rules are differences between real members (Java 2.8.2 to 4.1.1, librdkafka 2.16.0,
kafka-python 3.0.12, franz-go 1.22.2, sarama 1.61.1, segmentio/kafka-go 0.4.51, kafkajs 2.2.4);
versions by KIP-429, KIP-881 and the clients' change logs. "Only librdkafka" means: no other client
in groups/data/clients.yaml whose bytes were captured.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rebal.groups.clients import families, named_families
from rebal.groups.model import Evidence, Record, Software, Source, Subscription
from rebal.groups.streams import releases_of, user_data_of
from rebal.groups.wire.consumer_protocol import decode_sticky

COOPERATIVE_STICKY: Final = "cooperative-sticky"


class Trace(Record, frozen=True, kw_only=True):
    """One detail of a member's subscription or assignor that narrows down its client software.

    `family` is the client family that it proves; where it proves no single one, `between` names the
    families that remain, as text. `not_families` are the families that it excludes. `ranges` maps a
    family to the versions that remain.
    """

    family: str | None = None
    not_families: frozenset[str] = frozenset()
    ranges: Mapping[str, str] = {}
    between: str | None = None
    evidence: Evidence


def identify(
    client_id: str,
    member_id: str,
    subscription: Subscription | None,
    assignor: str | None,
    group_id: str | None = None,
) -> Software | None:
    """Return a guess, with its evidence, of a member's client from DescribeGroups alone.

    The hints are the subscription's bytes, then the elected assignor's name, then a client id that
    looks like a client's default. A client id is ignored if the bytes exclude that client. If the
    bytes leave several clients, `family` is None and `version_range` names them. The guess is None
    if there is no hint, or if two hints prove different families.
    """
    found = list(traces(subscription, assignor))
    by_id = _by_client_id(client_id, member_id, group_id)
    if by_id is not None and not any(by_id in trace.not_families for trace in found):
        detail = f'client id "{client_id}" looks like the default of {families()[by_id].title}'
        evidence = Evidence(source=Source.DESCRIBE, detail=detail)
        found.append(Trace(family=by_id, evidence=evidence))
    named = {trace.family for trace in found if trace.family is not None}
    # Streams' consumers are Java consumers: what proves Java does not speak against Streams
    if "streams" in named:
        named.discard("java")
    key = next(iter(named), None)
    told = [trace for trace in found if trace.family is not None or trace.between]
    if not told or len(named) > 1:
        return None
    if key is None:
        return Software(
            version_range=told[0].between, evidence=tuple(trace.evidence for trace in told)
        )
    return Software(
        family=key,
        version_range=next((one.ranges[key] for one in found if key in one.ranges), None),
        evidence=tuple(trace.evidence for trace in found),
    )


def excluded_by_bytes(subscription: Subscription | None, assignor: str | None) -> frozenset[str]:
    """Return the families that never send such subscription bytes for the elected `assignor`.

    The client id is not used, because anyone can set it.
    """
    excluded: set[str] = set()
    for trace in traces(subscription, assignor) if subscription is not None else ():
        excluded |= trace.not_families
        left = named_families(trace.between) if trace.between else (trace.family,)
        if left != (None,):
            excluded |= set(families()) - set(left)
    return frozenset(excluded)


def traces(subscription: Subscription | None, assignor: str | None) -> Iterator[Trace]:
    """Yield the details of one member's subscription that narrow down its client, strongest first.

    `assignor` is the group's elected assignor.
    """
    if assignor == "stream":
        evidence = Evidence(source=Source.DESCRIBE, detail="assignor stream is Kafka Streams' own")
        yield Trace(family="streams", evidence=evidence)
        data = user_data_of(subscription)
        versions = releases_of(subscription) if subscription is not None else None
        if data is not None and versions is not None:
            detail = f"Streams' user data: version {data.version}, highest {data.latest}"
            yield Trace(ranges={"streams": versions}, evidence=_sent(detail))
    elif assignor == "RoundRobinAssigner":
        detail = "assignor RoundRobinAssigner is kafkajs's own"
        yield Trace(family="kafkajs", evidence=Evidence(source=Source.DESCRIBE, detail=detail))
    if subscription is None:
        return
    version = subscription.version
    if version == 1 and subscription.owned_partitions is None:
        yield Trace(
            not_families=frozenset({"java", "streams", "librdkafka", "kafka-python", "franz-go"}),
            between="segmentio or sarama-cluster",
            evidence=_sent("a v1 subscription without owned partitions: v0 bytes marked as v1"),
        )
        return
    if version >= 3 and subscription.rack_id == "":
        yield _librdkafka("the rack is sent empty, not null")
    if by_user_data := _user_data(subscription, assignor):
        yield by_user_data
    if java := {0: "< 2.4", 1: ">= 2.4, < 3.4", 3: ">= 3.4"}.get(version):
        detail = f"subscription v{version}"
        yield Trace(ranges={"java": java, "streams": java}, evidence=_sent(detail))


def _user_data(subscription: Subscription, assignor: str | None) -> Trace | None:
    version, rack = subscription.version, subscription.rack_id
    plain = assignor in ("range", "roundrobin")
    cooperative = assignor == COOPERATIVE_STICKY and rack != ""
    match subscription.user_data:
        case None if plain:
            between = {1: "java >= 2.4, < 3.4, franz-go or sarama", 3: "java >= 3.4 or franz-go"}
            return Trace(
                not_families=frozenset({"librdkafka", "kafka-python", "kafkajs"}),
                between=between.get(version),
                evidence=_sent(
                    f"the user data of {assignor} is null in a v{version} subscription: not "
                    "librdkafka, kafka-python or kafkajs"
                ),
            )
        case b"" if plain and version >= 3 and rack:
            return _librdkafka(
                f"the user data of {assignor} is sent empty, not null, in a v3 subscription"
            )
        case b"" if cooperative and version == 1:
            return Trace(
                not_families=frozenset({"java", "franz-go", "sarama"}),
                between="kafka-python or librdkafka < 2.2",
                evidence=_sent("cooperative-sticky's user data is sent empty in a v1 subscription"),
            )
        case bytes(data) if cooperative and len(data) == 4 and data != bytes(4):
            return _generation_alone(version)
        case bytes(data) if cooperative and data and version >= 3 and rack is None:
            if decode_sticky(data).readable:
                return Trace(
                    family="franz-go",
                    not_families=frozenset({"java", "kafka-python"}),
                    evidence=_proves(
                        "cooperative-sticky's user data begins with a list of partitions and the "
                        "rack is null, as only franz-go sends"
                    ),
                )
    return None


def _generation_alone(version: int) -> Trace:
    """Return the `Trace` of cooperative-sticky user data that is a generation and nothing else.

    Java and sarama send it; sarama never sends subscription `version` 3.
    """
    others = frozenset({"librdkafka", "kafka-python", "franz-go"})
    detail = "cooperative-sticky's user data is a generation alone, as Java"
    if version >= 3:
        return Trace(
            family="java", not_families=others | {"sarama"}, evidence=_proves(f"{detail} sends")
        )
    return Trace(
        not_families=others,
        between={1: "java >= 2.4, < 3.4 or sarama", 2: "sarama"}.get(version),
        evidence=_sent(f"{detail} and sarama send"),
    )


def _librdkafka(detail: str) -> Trace:
    return Trace(
        family="librdkafka",
        # The others write a null rack.
        not_families=frozenset({"java", "streams", "franz-go"}),
        ranges={"librdkafka": ">= 2.2"},
        evidence=_proves(f"{detail}, as only librdkafka does"),
    )


def _proves(detail: str) -> Evidence:
    return Evidence(source=Source.CLIENT_BYTES, detail=detail)


def _sent(detail: str) -> Evidence:
    return Evidence(source=Source.SUBSCRIPTION, detail=detail)


def _by_client_id(client_id: str, member_id: str, group_id: str | None) -> str | None:
    """Return the client family whose default client id has the form of `client_id`; None if none.

    It is also None if the member id neither begins with the client id nor is a UUID.
    """
    is_uuid = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", member_id)
    if not client_id or not (is_uuid or member_id.startswith(client_id)):
        return None
    group = ".+" if group_id is None else re.escape(group_id)
    for known in families().values():
        pattern = known.client_id and known.client_id.replace("{group}", group)
        if pattern and re.fullmatch(pattern, client_id):
            return known.key
    return None
