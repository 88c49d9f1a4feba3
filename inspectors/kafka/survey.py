"""All groups of a cluster at once, in few requests: `survey`.

`read_groups` sends some six requests for each group. Here a coordinator describes many groups in
one request and gives their offsets in another, and all end offsets are asked for together. Each
broker gets one request at a time over the raw connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from rebal.groups.compact import NO_LAG
from rebal.groups.evidence.merge import merge
from rebal.groups.model import Cluster, GroupSnapshot
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.cluster import RawCluster, side_by_side
from rebal.inspectors.kafka.describe import (
    Described,
    Offsets,
    describe_many,
    offsets_of_many,
    within,
)
from rebal.inspectors.kafka.listing import (
    GroupFailure,
    failure_of,
    list_groups,
    pattern_of,
    reason_of,
)
from rebal.inspectors.kafka.read import (
    TopicPartition,
    lags_of,
    read_all,
    read_topics,
    snapshot_of,
    used_by,
)
from rebal.inspectors.kafka.session import Session, connect
from rebal.inspectors.kafka.wire import Connection, Deadline

_T = TypeVar("_T")
_Error = RequestError | ConnectError
_BATCH: Final = 50
_BROKERS: Final = 16
_MOVED: Final = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
)
_DELETED: Final = "GROUP_ID_NOT_FOUND"


class Survey(NamedTuple):
    """The groups of a cluster, those that could not be read or listed, and notes on all of them."""

    groups: list[GroupSnapshot]
    failures: list[GroupFailure]
    notes: tuple[str, ...] = ()


class _Answers(NamedTuple):
    """Answers of one coordinator on its groups; `moved` are those that it does not hold now."""

    described: list[Described]
    offsets: Mapping[str, Offsets | _Error]
    failures: list[GroupFailure]
    moved: list[str]


def survey(config: ClusterConfig, *, match: str | None = None) -> Survey:
    """Return every group of the cluster, or those whose whole id matches `match`.

    A broker that does not answer delays the answer by one timeout, whatever the number of groups.

    Raises:
        SelectionError: `match` is no regular expression, or no group matches it.
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    pattern = pattern_of(match)
    with connect(config) as session:
        raw = session.raw
        found, unlisted = list_groups(raw, pattern, needed=match is not None)
        by_broker: dict[int, list[str]] = {}
        for name, broker in found.items():
            by_broker.setdefault(broker, []).append(name)
        asked = list(by_broker.items())
        answers = side_by_side(lambda each: _of_broker(raw, *each), asked, _BROKERS)
        groups, notes = _snapshots(session, answers)
        failures = [failure for each in answers for failure in each.failures]
        for again in read_all(session, [name for each in answers for name in each.moved]):
            if isinstance(again, GroupSnapshot):
                groups.append(again)
            else:
                failures.append(again)
        return Survey(groups, [*failures, *unlisted], notes)


def _of_broker(raw: RawCluster, broker: int, group_ids: list[str]) -> _Answers:
    """Return what this coordinator says of its groups and of their offsets."""

    def described_by(
        connection: Connection, some: list[str], deadline: Deadline
    ) -> Mapping[str, Described | RequestError]:
        return describe_many(connection, broker, some, deadline)

    described: list[Described] = []
    failures: list[GroupFailure] = []
    moved: list[str] = []
    answers, deadline = _in_batches(raw, broker, group_ids, described_by)
    for name, answer in answers.items():
        if isinstance(answer, Described):
            described.append(answer)
        elif isinstance(answer, ConnectError):
            message = f"{name}: {answer}"
            failures.append(GroupFailure(group_id=name, message=message, kind="network"))
        elif answer.name in _MOVED:
            moved.append(name)
        elif answer.name != _DELETED:
            failures.append(failure_of(name, answer, deadline))
    names = [each.group_id for each in described]
    offsets, _ = _in_batches(raw, broker, names, offsets_of_many)
    return _Answers(described, offsets, failures, moved)


def _in_batches(
    raw: RawCluster,
    broker: int,
    group_ids: list[str],
    ask: Callable[[Connection, list[str], Deadline], Mapping[str, _T | RequestError]],
) -> tuple[dict[str, _T | _Error], Deadline]:
    """Return `ask`'s answers, and the deadline of the last batch that was asked.

    After a batch without an answer no more is asked: the broker would delay each of them.
    """
    found: dict[str, _T | _Error] = {}
    deadline = raw.deadline()
    for begin in range(0, len(group_ids), _BATCH):
        deadline = raw.deadline()
        try:
            some = group_ids[begin : begin + _BATCH]
            found |= ask(raw.node(broker, deadline), some, deadline)
        except (RequestError, ConnectError) as error:
            found |= dict.fromkeys(group_ids[begin:], error)
            break
    return found, deadline


def _snapshots(
    session: Session, answers: Sequence[_Answers]
) -> tuple[list[GroupSnapshot], tuple[str, ...]]:
    """Return the described groups with their topics and lag, and notes on what was not read."""
    raw = session.raw
    notes: list[str] = []
    owned, names = _used(answers)
    topics = {each.name: each for each in read_topics(session, names, raw.deadline(), notes)}
    ends: Mapping[TopicPartition, int] | None = None
    try:
        ends = session.resources.ends(owned, raw.deadline())
    except (RequestError, ConnectError) as error:
        notes.append(f"lag was not read: {reason_of(error)}")
    made: list[GroupSnapshot] = []
    for each in answers:
        if not each.described:
            continue
        broker = each.described[0].coordinator_id
        cluster, unread = _cluster(session, broker)
        notes += unread
        for read in each.described:
            described = within(read, topics.values())
            used, needed = used_by(described)
            offsets = each.offsets[described.group_id]
            lag = NO_LAG
            if ends is not None and not isinstance(offsets, RequestError | ConnectError):
                lag = lags_of(used, offsets, ends)
            snapshot = snapshot_of(
                described,
                address=raw.brokers.get(broker),
                cluster=cluster,
                topics=tuple(topics[name] for name in sorted(needed & topics.keys())),
                lag=lag,
                notes=(),
            )
            made.append(merge(snapshot, ()))
    return made, tuple(dict.fromkeys(notes))


def _used(answers: Iterable[_Answers]) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions whose end offsets are needed, and the topics of all groups."""
    partitions: set[TopicPartition] = set()
    names: set[str] = set()
    for each in answers:
        for described in each.described:
            owned, topics = used_by(described)
            partitions |= owned
            names |= topics
        for offsets in each.offsets.values():
            if not isinstance(offsets, RequestError | ConnectError):
                partitions |= offsets.keys()
    return sorted(partitions), sorted(names)


def _cluster(session: Session, broker: int) -> tuple[Cluster, list[str]]:
    """Return the cluster as this coordinator describes it, and notes on what was not read."""
    try:
        return session.cluster(broker, session.raw.deadline())
    except (RequestError, ConnectError) as error:
        return Cluster(), [f"the settings of broker {broker} were not read: {reason_of(error)}"]
