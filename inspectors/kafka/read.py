"""Live groups: `select_groups` says which, `read_groups` reads each into a `GroupSnapshot`.
`read_brokers` reads what is there without any group.

Two Kafka clients answer. kafka-python's messages give the description with the members' raw
subscription bytes, in one answer of one moment; confluent-kafka gives offsets, topics and the
broker's settings, and stands in for the description when only it can log in. What one of them
cannot read becomes a note, what neither can a failure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from kafka.protocol.admin.groups import ListGroupsRequest

from rebal.groups.model import GroupSnapshot, Record
from rebal.groups.snapshot.partitions import Partitions
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.kafka.admin import Admin
from rebal.inspectors.kafka.brokers import SeenBrokers
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.errors import ConnectError, RequestError, SelectionError, SettingError
from rebal.inspectors.kafka.group import Session, read_group
from rebal.inspectors.kafka.wire import Deadline, error_name, seconds

_THREADS: Final = 8
_SILENT: Final = frozenset({"UNREACHABLE", "DISCONNECTED", "TIMED_OUT"})
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_MESSAGES: Final = {
    "GROUP_ID_NOT_FOUND": ("not-found", "no such group"),
    "GROUP_AUTHORIZATION_FAILED": (
        "authorization",
        "no right to describe it: allow DESCRIBE on the group (rebal doctor shows how)",
    ),
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "loading",
        "its coordinator is still loading after {within}: try again, or give --timeout",
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "loading",
        "no coordinator within {within}: {topic} has no leader for it; try again",
    ),
    "NOT_COORDINATOR": ("loading", "its coordinator keeps moving: try again"),
    "TIMED_OUT": ("timeout", "no answer within {within}: is the broker up? (--timeout)"),
    "DISCONNECTED": ("network", "the broker went away while it was read: try again"),
    "UNREACHABLE": ("network", ""),
    "TOPIC_AUTHORIZATION_FAILED": (
        "authorization",
        "no right to see all its topics, which a KIP-848 group needs: allow DESCRIBE on them",
    ),
    "INVALID_GROUP_ID": ("not-found", "the broker does not take this for a group id"),
}


class GroupFailure(Record, frozen=True, kw_only=True):
    """Why one group could not be read, or why the groups of one coordinator could not be listed.

    `group_id` is None where the names of the groups are not known; `broker_id` is then their
    coordinator (None: they have none, or it is not known). `kind` is not-found, authorization,
    loading, timeout, network or other.
    """

    group_id: str | None
    message: str
    kind: str
    broker_id: int | None = None

    @property
    def name(self) -> str:
        """The group, or what did not list its groups."""
        if self.group_id is not None:
            return self.group_id
        return "the cluster" if self.broker_id is None else f"broker {self.broker_id}"


class Selection(Record, frozen=True, kw_only=True):
    """The ids of the groups to read, and the coordinators whose groups could not be listed."""

    group_ids: tuple[str, ...] = ()
    unlisted: tuple[GroupFailure, ...] = ()


def select_groups(
    config: ClusterConfig,
    wanted: Sequence[str],
    *,
    match: str | None = None,
    all_groups: bool = False,
) -> Selection:
    """Return the ids to read: `wanted` as given, and those listed by the cluster, sorted.

    `match` is a regular expression for the whole group id. Only groups that the user may describe
    are listed by the cluster.

    Raises:
        SelectionError: not a regular expression, or nothing matches.
        ConnectError: the cluster cannot be reached.
    """
    chosen = list(dict.fromkeys(wanted))
    if match is None and not all_groups:
        return Selection(group_ids=tuple(chosen))
    try:
        pattern = re.compile(match) if match is not None else None
    except re.error as error:
        raise SelectionError(f"--match: not a regular expression: {error}.") from None
    listed, unlisted = _list_groups(config)
    found = [each for each in listed if pattern is None or pattern.fullmatch(each)]
    if not found and not chosen:
        what = f"no group matches {match!r}" if match is not None else "the cluster lists no group"
        hint = f"; it lists {len(listed)}" if listed else " that you may describe"
        raise SelectionError(" ".join([f"{what}{hint}.", *(each.message for each in unlisted)]))
    group_ids = tuple(dict.fromkeys([*chosen, *found]))
    return Selection(group_ids=group_ids, unlisted=tuple(unlisted))


def read_groups(
    config: ClusterConfig,
    group_ids: Sequence[str],
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
) -> list[GroupSnapshot | GroupFailure]:
    """Each group as a snapshot, or the reason why not, in the order asked.

    Groups are read side by side, each within `config.timeout_ms`. With `probe` the coordinator is
    asked for the known assignors, the selected one and `assignors`.

    Raises:
        ConnectError: the cluster cannot be reached, or neither client can log in.
    """
    if not group_ids:
        return []
    with _connect(config) as session:

        def one(group_id: str) -> GroupSnapshot | GroupFailure:
            try:
                return read_group(session, group_id, probe=probe, assignors=assignors)
            except RequestError as error:
                return _failure(group_id, error, config)
            except ConnectError as error:
                return GroupFailure(
                    group_id=group_id, message=f"{group_id}: {error}", kind="network"
                )

        pool = ThreadPoolExecutor(min(_THREADS, len(group_ids)))
        try:
            return list(pool.map(one, group_ids))
        finally:
            # After Ctrl-C nobody waits for answers: closing the session wakes the threads.
            pool.shutdown(wait=False, cancel_futures=True)


def read_brokers(config: ClusterConfig) -> SeenBrokers:
    """The cluster, by what the first of its brokers says of it.

    Raises:
        ConnectError: the cluster cannot be reached, or neither client can log in.
        RequestError: a broker cannot be asked.
    """
    with _connect(config) as session:
        deadline = Deadline(config.timeout_ms)
        if session.raw is not None:
            first = min(session.raw.brokers)
        else:
            assert session.admin is not None
            first = min(broker.broker_id for broker in session.admin.cluster(deadline)[1])
        cluster, notes = session.cluster(first, deadline)
        topics = [] if session.admin is None else session.admin.all_topics(deadline)
        return SeenBrokers(
            at=datetime.now(UTC),
            cluster=cluster,
            topics={topic.name: topic.partitions for topic in topics},
            topic_names={topic.topic_id: topic.name for topic in topics if topic.topic_id},
            notes=tuple(notes),
        )


def _failure(group_id: str, error: RequestError, config: ClusterConfig) -> GroupFailure:
    kind, text = _MESSAGES.get(error.name, ("other", ""))
    within = seconds(config.timeout_ms)
    text = text.format(within=within, topic=_OFFSETS_TOPIC) or str(error).rstrip(".")
    return GroupFailure(group_id=group_id, message=f"{group_id}: {text}.", kind=kind)


def _connect(config: ClusterConfig) -> Session:
    """Both clients, or the one that can log in with a note about the other."""
    deadline = Deadline(config.timeout_ms)
    raw: RawCluster | None = RawCluster(config)
    admin: Admin | None = None
    raw_error: ConnectError | SettingError | RequestError | None = None
    notes: list[str] = []
    assert raw is not None
    try:
        raw.any(deadline)
    except ConnectError as error:
        # Nobody is there, or nobody that speaks Kafka, or no token is to be had: the other client
        # would only take longer.
        if error.kind in ("unreachable", "timeout", "protocol", "token"):
            raise
        raw_error = error
    except (SettingError, RequestError) as error:
        raw_error = error
    try:
        admin = _admin(config, deadline, tried=raw_error is not None)
    except (ConnectError, RequestError) as error:
        if raw_error is not None:
            raw.close()
            raise _both(raw_error) from None
        notes.append(f"offsets, lag and settings were not read: {error}")
        admin = None
    if raw_error is not None:
        raw.close()
        raw = None
        notes.append(
            "the members' subscription bytes were not read and nothing was probed, because "
            f"kafka-python cannot log in: {raw_error}"
        )
    return Session(config, raw, admin, tuple(notes))


def _admin(config: ClusterConfig, deadline: Deadline, *, tried: bool) -> Admin:
    """librdkafka's client, `tried` by one question."""
    made = Admin(config)
    try:
        if tried:
            made.cluster(deadline)
    except BaseException:
        made.close()
        raise
    return made


def _both(error: ConnectError | SettingError | RequestError) -> Exception:
    return ConnectError(str(error), "protocol") if isinstance(error, RequestError) else error


def _list_groups(config: ClusterConfig) -> tuple[list[str], list[GroupFailure]]:
    """The ids of the groups that each broker coordinates, sorted, and who did not list theirs."""
    with _connect(config) as session:
        deadline = Deadline(config.timeout_ms)
        if session.raw is None:
            assert session.admin is not None
            found, errors = session.admin.groups(deadline)
            return sorted(found), [_unlisted(None, error) for error in errors]
        raw = session.raw
        raw.any(deadline)
        brokers = sorted(raw.brokers)
        pool = ThreadPoolExecutor(min(_THREADS, len(brokers)))
        try:
            answers = list(pool.map(lambda broker: _listed_by(raw, broker, config), brokers))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        unlisted = [answer for answer in answers if isinstance(answer, GroupFailure)]
        listed = {name for answer in answers if isinstance(answer, set) for name in answer}
        if len(unlisted) < len(brokers):
            unlisted += _leaderless(raw, config)
        return sorted(listed), unlisted


def _listed_by(raw: RawCluster, broker_id: int, config: ClusterConfig) -> set[str] | GroupFailure:
    deadline = Deadline(config.timeout_ms)
    try:
        answer = raw.node(broker_id, deadline).send(ListGroupsRequest, deadline)
    except (RequestError, ConnectError) as error:
        return _unlisted(broker_id, str(error), silent=getattr(error, "name", "") in _SILENT)
    if answer.error_code:
        return _unlisted(broker_id, error_name(answer.error_code))
    return {group.group_id for group in answer.groups}


def _leaderless(raw: RawCluster, config: ClusterConfig) -> list[GroupFailure]:
    """The partitions of the offsets topic that no broker leads: their groups have no coordinator.

    A broker that the controller has given up is in no list of brokers any more.
    """
    try:
        (topic,) = raw.metadata([_OFFSETS_TOPIC], Deadline(config.timeout_ms)).topics
    except (RequestError, ConnectError):
        return []
    lost = sorted(part.partition_index for part in topic.partitions if part.leader_id < 0)
    if not lost:
        return []
    which = f"{len(lost)} of {len(topic.partitions)} partitions of {_OFFSETS_TOPIC} have no leader"
    said = f"{which} ({Partitions(lost)}): the groups that are kept there are not listed."
    return [GroupFailure(group_id=None, message=said, kind="loading")]


def _unlisted(broker_id: int | None, why: str, *, silent: bool = False) -> GroupFailure:
    why = why.rstrip(".")
    if silent:
        text = f"{why}: the groups that it coordinates are not listed."
    else:
        who = "a broker" if broker_id is None else f"broker {broker_id}"
        text = f"{who} could not list the groups that it coordinates: {why}."
    return GroupFailure(group_id=None, message=text, kind="network", broker_id=broker_id)
