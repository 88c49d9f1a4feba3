"""`snapshots`: the GroupSnapshots of live groups, made from their coordinators' descriptions.

A coordinator's description has the members' raw subscription bytes, from one moment. Topics, end
offsets and settings of all groups are read together. Data that cannot be read becomes a note.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups import VERSION, clients
from rebal.groups.compact import NO_LAG, Lag, Lags
from rebal.groups.model import (
    Cluster,
    Coordinator,
    Evidence,
    Group,
    GroupSnapshot,
    GroupType,
    Probe,
    Source,
    Timeouts,
    Topic,
    Tri,
)
from rebal.inspectors import clock
from rebal.inspectors.errors import (
    ConnectError,
    RequestError,
)
from rebal.inspectors.kafka.brokers import coordinator_kind
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.describe import (
    CONSUMER,
    Described,
    GroupLook,
    Offsets,
    limited_to_topics,
)
from rebal.inspectors.kafka.reload import (
    Fetches,
    Reading,
    proven_by_probe,
    rebalanced_since_load,
)
from rebal.inspectors.kafka.session import Session, TopicPartition
from rebal.inspectors.kafka.wire import Deadline, request_class

# The type of a group's configuration, and the source of a value that was set there (KIP-848).
_GROUP: Final = 32
_OF_GROUP: Final = 8
_YEAR_10000: Final = 253_402_300_800_000
_NOT_ASKED: Final = "read only together with the probe (--probe)"
_NO_SETTINGS: Final = "the group's own settings were not read: allow DESCRIBE_CONFIGS on the group"


def snapshots(
    session: Session, looks: Sequence[GroupLook], deadline: Callable[[], Deadline]
) -> list[GroupSnapshot]:
    """Return a snapshot of each group: its topics, settings and lag, and notes on unread data.

    `looks` are the groups' descriptions and committed offsets. Each kind of data is requested for
    all groups at once, end offsets last, because a stopped broker delays them. `deadline()` makes
    the deadline of the next request.
    """
    ahead = session.clock_ahead(deadline())
    own = own_settings(session.raw, [look.described.group_id for look in looks], deadline())
    clusters = {
        broker: session.cluster(broker, deadline())
        for broker in {look.described.coordinator_id for look in looks}
    }
    topics, unread = _topics(session, looks, deadline())
    ends = _ends(session, looks, deadline())
    made: list[GroupSnapshot] = []
    for look in looks:
        described = limited_to_topics(look.described, topics.values())
        cluster, notes = clusters[described.coordinator_id]
        _, names = used_by(described)
        lag, no_lag = _lag(described, look.offsets, ends)
        settings = own.get(described.group_id) if own is not None else {}
        if settings:
            cluster = replace(cluster, settings={**cluster.settings, **settings})
        is_missing = settings is None and described.type is GroupType.CONSUMER
        made.append(
            snapshot_of(
                described,
                address=session.raw.brokers.get(described.coordinator_id),
                cluster=cluster,
                topics=tuple(topics[name] for name in sorted(names & topics.keys())),
                lag=lag,
                ahead=ahead,
                notes=(
                    *([clock.note(ahead)] if ahead else []),
                    *notes,
                    *(unread[name] for name in sorted(names & unread.keys())),
                    *no_lag,
                    *([_NO_SETTINGS] if is_missing else []),
                ),
            )
        )
    return made


def _topics(
    session: Session, looks: Sequence[GroupLook], deadline: Deadline
) -> tuple[dict[str, Topic], dict[str, str]]:
    names = sorted({name for look in looks for name in used_by(look.described)[1]})
    try:
        found, failed = session.topics(names, deadline)
    except (RequestError, ConnectError) as error:
        return {}, dict.fromkeys(names, f"topics were not read: {error.reason}")
    return {topic.name: topic for topic in found}, {
        name: _topic_note(name, error) for name, error in failed.items()
    }


def _ends(
    session: Session, looks: Sequence[GroupLook], deadline: Deadline
) -> Mapping[TopicPartition, int] | RequestError | ConnectError:
    partitions: set[TopicPartition] = set()
    for described, offsets in looks:
        if not isinstance(offsets, RequestError):
            partitions |= used_by(described)[0] | offsets.keys()
    try:
        return session.ends(sorted(partitions), deadline)
    except (RequestError, ConnectError) as error:
        return error


def _lag(
    described: Described,
    offsets: Offsets | RequestError,
    ends: Mapping[TopicPartition, int] | RequestError | ConnectError,
) -> tuple[Lags, list[str]]:
    if isinstance(offsets, RequestError | ConnectError):
        return NO_LAG, [f"lag was not read: {offsets.reason}"]
    if isinstance(ends, RequestError | ConnectError):
        return NO_LAG, [f"lag was not read: {ends.reason}"]
    owned, _ = used_by(described)
    return Lags(
        Lag(topic=each[0], partition=each[1], committed=offsets.get(each), end=ends.get(each))
        for each in sorted(owned | offsets.keys())
    ), []


def own_settings(
    raw: RawCluster, group_ids: Sequence[str], deadline: Deadline
) -> dict[str, dict[str, str]] | None:
    """Return group id → settings that were set for that group (KIP-848), as name → value.

    The names are those of the broker settings that they override (`group.consumer.…`). None: the
    brokers keep no settings for groups (before 4.0), or did not answer. A group is left out if its
    settings could not be read, such as for lack of a right.
    """
    resources = [
        {"resource_type": _GROUP, "resource_name": each, "configuration_keys": None}
        for each in group_ids
    ]
    try:
        connection = raw.any(deadline)
        if connection.features.get("group.version", 0) < 1:
            return None
        answer = connection.send(
            request_class("DescribeConfigs"), deadline.share(2), min_version=1, resources=resources
        )
    except (RequestError, ConnectError):
        return None
    return {
        result.resource_name: {
            f"group.{setting.name}": setting.value
            for setting in result.configs
            if setting.config_source == _OF_GROUP and setting.name.startswith("consumer.")
        }
        for result in answer.results
        if not result.error_code
    }


def snapshot_of(
    described: Described,
    *,
    address: tuple[str, int, str | None] | None,
    cluster: Cluster,
    topics: tuple[Topic, ...],
    lag: Lags,
    ahead: timedelta | None = timedelta(),
    notes: tuple[str, ...] = (),
) -> GroupSnapshot:
    """Return the snapshot of a described group, dated by the brokers' clock.

    `address` is the coordinator's host, port and rack (None: the brokers do not name it). `ahead`
    is how far this machine's clock is ahead of the brokers' (None: not measured; the time is then
    this machine's).
    """
    at = described.at - (ahead or timedelta())
    host, port, _ = address or ("", 0, None)
    kind = described.type.value.capitalize()
    request = "DescribeGroups" if described.type is GroupType.CLASSIC else f"{kind}GroupDescribe"
    return GroupSnapshot(
        group=Group(
            group_id=described.group_id,
            state=described.state,
            type=described.type,
            protocol_type=described.protocol_type,
            assignor=described.assignor,
            group_epoch=described.group_epoch,
            assignment_epoch=described.assignment_epoch,
            coordinator=Coordinator(
                broker_id=described.coordinator_id,
                host=host,
                port=port,
                kind=coordinator_kind(cluster),
                rebalanced_why=_NOT_ASKED if described.type is GroupType.CLASSIC else "",
            ),
        ),
        captured_at=at,
        clock_ahead_ms=round((ahead or timedelta()) / timedelta(milliseconds=1)),
        clock_compared=ahead is not None,
        captured_by=f"rebal {VERSION}",
        cluster=cluster,
        evidence=(Evidence(source=Source.DESCRIBE, at=at, detail=request),),
        members=described.members,
        topics=topics,
        lag=lag,
        notes=tuple(dict.fromkeys(notes)),
    )


def assignors_to_ask(elected: str | None, more: Sequence[str]) -> tuple[str, ...]:
    """Return the assignors to probe for: `elected`, then `more`, then all that rebal knows."""
    # Assignors with `depends` belong to Connect workers and Streams.
    known = [n for n, assignor in clients.assignors().items() if assignor.protocols != "depends"]
    return tuple(dict.fromkeys([*([elected] if elected else []), *more, *known]))


def used_by(described: Described) -> tuple[set[TopicPartition], set[str]]:
    """Return the partitions that the members own, and the topics they own or subscribe to."""
    owned = {
        (topic, number)
        for member in described.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    return owned, {topic for topic, _ in owned} | {
        t for member in described.members for t in member.subscribed_topics
    }


def _topic_note(name: str, error: RequestError) -> str:
    known = {
        "TOPIC_AUTHORIZATION_FAILED": f"topic {name} was not read: allow DESCRIBE on it",
        "UNKNOWN_TOPIC_OR_PARTITION": f"topic {name} does not exist",
    }
    return known.get(error.name, f"topic {name} was not read: {error.reason}")


def with_probe(
    session: Session, snapshot: GroupSnapshot, probe: Probe, fetches: Fetches
) -> GroupSnapshot:
    """Return the snapshot with the probe's answers, and with the group's last load and generation.

    The last load and the generation are read from `__consumer_offsets`, for classic consumer groups
    only. `fetches` must be made after the probe, so that its records are not older than the
    answers.
    """
    group = snapshot.group
    ahead = timedelta(milliseconds=snapshot.clock_ahead_ms)
    answers = tuple(replace(answer, at=answer.at - ahead) for answer in probe.answers)
    snapshot = replace(snapshot, probe=replace(probe, answers=answers))
    if group.type is not GroupType.CLASSIC or group.protocol_type != CONSUMER:
        return snapshot
    return _with_reading(
        snapshot,
        proven_by_probe(
            rebalanced_since_load(session.raw, group.group_id, fetches),
            group.assignor,
            [answer.assignor for answer in probe.answers if answer.supported is Tri.YES],
        ),
    )


def _with_reading(snapshot: GroupSnapshot, reading: Reading) -> GroupSnapshot:
    coordinator = snapshot.group.coordinator
    assert coordinator is not None
    record, loaded_at = reading.stored, _moment(reading.loaded_ms)
    generation_at = _moment(record.state_timestamp_ms) if record is not None else None
    snapshot = _noted(snapshot, generation_at, loaded_at)
    coordinator = replace(
        coordinator,
        rebalanced_since_load=reading.rebalanced,
        rebalanced_why=reading.why,
        loaded_at=loaded_at,
        leader_epoch=reading.epoch,
    )
    if record is None:
        return replace(snapshot, group=replace(snapshot.group, coordinator=coordinator))
    group = replace(
        snapshot.group,
        coordinator=coordinator,
        generation=record.generation,
        generation_at=generation_at,
    )
    stored_in = Evidence(
        source=Source.OFFSETS_TOPIC,
        at=clock.now() - timedelta(milliseconds=snapshot.clock_ahead_ms),
        detail=f"generation {record.generation}",
    )
    stored = {
        one.member_id: Timeouts(
            session_ms=one.session_timeout_ms,
            # Version 0 of the record has none: the coordinator uses the session timeout.
            rebalance_ms=one.rebalance_timeout_ms or one.session_timeout_ms,
            evidence=(stored_in,),
        )
        for one in record.members
    }
    return replace(
        snapshot,
        group=group,
        members=tuple(replace(one, timeouts=stored.get(one.member_id)) for one in snapshot.members),
        evidence=(*snapshot.evidence, stored_in),
    )


def _noted(snapshot: GroupSnapshot, *moments: datetime | None) -> GroupSnapshot:
    """Return the snapshot with a note if one of `moments` is more than 2 s later than the snapshot.

    `moments` are times read from `__consumer_offsets`. A later one proves that this machine's clock
    is behind the brokers' by at least the difference. The snapshot's time is not corrected by this
    lower bound, which differs at each reading, and `clock_compared` becomes False.
    """
    latest = max((moment for moment in moments if moment is not None), default=None)
    if latest is None or latest - snapshot.captured_at <= clock.MATERIAL:
        return snapshot
    return replace(
        snapshot,
        clock_compared=False,
        notes=(*snapshot.notes, clock.note(snapshot.captured_at - latest, at_least=True)),
    )


def _moment(ms: int | None) -> datetime | None:
    return clock.moment(ms * 1000) if ms is not None and 0 <= ms < _YEAR_10000 else None
