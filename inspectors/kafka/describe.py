"""The coordinator's view of one group (`describe`, `committed_offsets`) or of many (`look_at`).

Sources: DescribeGroups (instance ids since v4, KIP-345; an error for a missing group since v6,
KIP-1043), ConsumerGroupDescribe (KIP-848, KIP-1099), StreamsGroupDescribe (KIP-1071),
ShareGroupDescribe (KIP-932).

librdkafka's admin calls are not used: a call to a coordinator aborts the whole process if the
connection drops at the wrong moment (confluentinc/librdkafka#4605, cause in #5397), and a `--watch`
must survive that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from kafka.protocol.admin.groups import DescribeGroupsRequest
from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.errors import WireError
from rebal.groups.model import (
    Group,
    GroupState,
    GroupType,
    Member,
    Topic,
    TopicPartitions,
    WorkerState,
)
from rebal.groups.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    decode_worker,
    decode_worker_assignment,
)
from rebal.inspectors import clock
from rebal.inspectors.errors import RequestError, error_name, unless_error
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.wire import BrokerConnection, Deadline, message, request_class

_T = TypeVar("_T")
CONSUMER: Final = "consumer"
CONNECT: Final = "connect"
_STATES: Final = {state.value: state for state in GroupState}
_DESCRIPTIONS: Final = {
    GroupType.CONSUMER: "ConsumerGroupDescribe",
    GroupType.STREAMS: "StreamsGroupDescribe",
    GroupType.SHARE: "ShareGroupDescribe",
}
NOT_THERE: Final = "GROUP_ID_NOT_FOUND"
NOT_CLASSIC: Final = "NOT_CLASSIC"


class Described(Group, frozen=True, kw_only=True):
    """A group and its members as the coordinator described them at `at`, by this machine's clock.

    `operations` are the codes of the AclOperations that the user may do on the group (KIP-430).
    None: they were not requested, or the broker does not report them (before 2.3).
    """

    at: datetime
    coordinator_id: int
    members: tuple[Member, ...] = ()
    operations: Set[int] | None = None


def describe(
    cluster: RawCluster, group_id: str, deadline: Deadline, *, operations: bool = False
) -> Described:
    """Return the group as its coordinator holds it now; waits while the coordinator loads it.

    Raises:
        RequestError: GROUP_ID_NOT_FOUND (no such group), GROUP_AUTHORIZATION_FAILED, or no answer.
        ConnectError: the cluster cannot be reached.
    """
    return cluster.on_coordinator(
        group_id,
        deadline,
        lambda connection, broker: unless_error(
            describe_many(connection, broker, [group_id], deadline, operations=operations)[group_id]
        ),
    )


def describe_many(
    connection: BrokerConnection,
    broker: int,
    group_ids: Sequence[str],
    deadline: Deadline,
    *,
    operations: bool = False,
) -> dict[str, Described | RequestError]:
    """Return group id → description by the group's coordinator `broker`, or that broker's error.

    `connection` is a connection to `broker`. At most four requests are sent, whatever the number of
    groups.

    Raises:
        RequestError: a request got no answer.
    """
    request = _classic_request(connection, group_ids, operations=operations)
    found = _classic(connection.exchange(request, deadline), broker)
    for kind, name in _DESCRIPTIONS.items():
        left = [group_id for group_id in group_ids if group_id not in found]
        if not left or not connection.supports(description := request_class(name)):
            continue
        found |= {
            group.group_id: _error(group) if group.error_code else _new_group(group, broker, kind)
            for group in connection.send(
                description, deadline, group_ids=left, include_authorized_operations=operations
            ).groups
            if error_name(group.error_code) not in (NOT_THERE, "UNSUPPORTED_VERSION")
        }
    missing = [group_id for group_id in group_ids if group_id not in found]
    return found | {each: RequestError(NOT_THERE, f"{each}: no such group") for each in missing}


def look_at_classic(
    connection: BrokerConnection,
    broker: int,
    group_ids: Sequence[str],
    deadline: Deadline,
    first: Sequence[Any] = (),
) -> tuple[list[Any], dict[str, Described | RequestError]]:
    """Send the requests `first`, then describe the groups, all in one write.

    Return the responses to `first`, and group id → description or error. The error is NOT_CLASSIC
    unless the coordinator `broker` confirms that the group is classic: DescribeGroups describes it,
    and ConsumerGroupDescribe answers GROUP_ID_NOT_FOUND or UNSUPPORTED_VERSION for it. A
    coordinator without ConsumerGroupDescribe holds classic groups only.

    Raises:
        RequestError: a request got no answer.
    """
    sent = [*first, _classic_request(connection, group_ids, operations=False)]
    newer = request_class(_DESCRIPTIONS[GroupType.CONSUMER])
    if connection.supports(newer):
        sent.append(message(newer, connection.version(newer), group_ids=list(group_ids)))
    answers = connection.exchange_all(sent, deadline)
    answered, (classic, *others) = answers[: len(first)], answers[len(first) :]
    found = _classic(classic, broker)
    denied = {
        group.group_id
        for each in others
        for group in each.groups
        if error_name(group.error_code) in (NOT_THERE, "UNSUPPORTED_VERSION")
    }
    if others:
        found = {k: v for k, v in found.items() if k in denied or isinstance(v, RequestError)}
    return answered, {
        each: found.get(each) or RequestError(NOT_CLASSIC, f"{each}: not a classic group")
        for each in group_ids
    }


def _error(group: Any) -> RequestError:
    name = error_name(group.error_code)
    return RequestError(name, f"{group.group_id}: {(group.error_message or name).rstrip('.')}")


def _classic_request(
    connection: BrokerConnection, group_ids: Sequence[str], *, operations: bool
) -> Any:
    return message(
        DescribeGroupsRequest,
        connection.version(DescribeGroupsRequest),
        groups=list(group_ids),
        include_authorized_operations=operations,
    )


def _classic(response: Any, broker: int) -> dict[str, Described | RequestError]:
    """Return group id → the group, or its error, from a DescribeGroups response.

    Groups that are missing or Dead are left out.
    """
    found: dict[str, Described | RequestError] = {}
    for group in response.groups:
        state = _STATES.get(group.group_state, GroupState.UNKNOWN)
        if error_name(group.error_code) not in (NOT_THERE, "NONE"):
            found[group.group_id] = _error(group)
        elif not group.error_code and state is not GroupState.DEAD:
            of_connect = group.protocol_type == CONNECT
            parsed = group.protocol_type == CONSUMER
            found[group.group_id] = Described(
                group_id=group.group_id,
                type=GroupType.CLASSIC,
                state=state,
                at=clock.now(),
                coordinator_id=broker,
                protocol_type=group.protocol_type,
                assignor=group.protocol_data or None,
                members=tuple(
                    _worker(member) if of_connect else _classic_member(member, parsed)
                    for member in _sorted(group.members)
                ),
                operations=group.authorized_operations,
            )
    return found


def _decoded(decode: Callable[[bytes], _T], data: bytes | None) -> tuple[_T | None, str | None]:
    """Return (`decode(data)`, None), or (None, reason) if `data` cannot be decoded.

    If `data` is empty, both items are None: unless a group is Stable, its coordinator describes
    members without metadata and assignments.
    """
    try:
        return decode(bytes(data)) if data else None, None
    except WireError as wrong:
        return None, str(wrong)


def _classic_member(member: Any, parsed: bool) -> Member:
    metadata, assigned = (
        (member.member_metadata, member.member_assignment) if parsed else (b"", b"")
    )
    subscription, error = _decoded(decode_subscription, metadata)
    assignment, wrong = _decoded(decode_assignment, assigned)
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        instance_id=member.group_instance_id,
        rack=subscription.rack_id if subscription else None,
        subscription=subscription,
        subscription_error=error or wrong,
        subscribed_topics=subscription.topics if subscription else (),
        assignment=assignment.partitions if assignment else {},
        assignment_user_data=assignment.user_data if assignment else None,
    )


def _worker(member: Any) -> Member:
    from rebal.groups.assignors.connect import GivenWork, after, running_of, work_of

    made = _classic_member(member, parsed=False)
    reported, wrong = _decoded(decode_worker, member.member_metadata)
    if reported is None:
        return replace(made, subscription_error=wrong)
    given, wrong = _decoded(decode_worker_assignment, member.member_assignment)
    if given is None:
        return replace(made, worker=WorkerState(url=reported.url), subscription_error=wrong)
    # The incremental protocols send only changes, relative to the worker's own report.
    before = (
        reported.assignment.assigned if given.version and reported.assignment is not None else ()
    )
    now = after(
        work_of(before), GivenWork(assigned=work_of(given.assigned), revoked=work_of(given.revoked))
    )
    return replace(
        made,
        worker=WorkerState(
            url=reported.url,
            running=running_of(now),
            leader=given.leader == made.member_id,
            held_back_ms=given.delay_ms,
        ),
    )


def _new_group(group: Any, broker: int, kind: GroupType) -> Described:
    return Described(
        group_id=group.group_id,
        type=kind,
        state=_STATES.get(group.group_state, GroupState.UNKNOWN),
        at=clock.now(),
        coordinator_id=broker,
        protocol_type=kind.value,
        assignor=group.assignor_name or None,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=_stream_members(group)
        if kind is GroupType.STREAMS
        else tuple(map(_consumer_member, _sorted(group.members))),
        operations=group.authorized_operations,
    )


def _consumer_member(member: Any) -> Member:
    """Return a member from a ConsumerGroupDescribe or ShareGroupDescribe response.

    A share group's member has no instance id, topic regex, target assignment or member type.
    """
    target = getattr(member, "target_assignment", None)
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        instance_id=getattr(member, "instance_id", None),
        rack=member.rack_id,
        subscribed_topics=tuple(sorted(member.subscribed_topic_names)),
        subscribed_regex=getattr(member, "subscribed_topic_regex", None) or None,
        assignment=_by_topic(member.assignment),
        target_assignment=None if target is None else _by_topic(target),
        member_epoch=member.member_epoch,
        protocol_type={0: "classic", 1: "consumer"}.get(getattr(member, "member_type", -1)),
    )


def _stream_members(group: Any) -> tuple[Member, ...]:
    """Return the members from a StreamsGroupDescribe response.

    A member's assignment is the partitions that its active tasks read.
    """
    topology = group.topology.subtopologies if group.topology is not None else None
    read = {
        part.subtopology_id: (
            *part.source_topics,
            *(topic.name for topic in part.repartition_source_topics),
        )
        for part in topology or ()
    }

    def partitions(assignment: Any) -> dict[str, Partitions]:
        found: dict[str, list[int]] = {}
        for task in assignment.active_tasks:
            for topic in read.get(task.subtopology_id, ()):
                found.setdefault(topic, []).extend(task.partitions)
        return {topic: Partitions(sorted(found[topic])) for topic in sorted(found)}

    return tuple(
        Member(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            instance_id=member.instance_id,
            rack=member.rack_id,
            subscribed_topics=tuple(
                sorted({topic for topics in read.values() for topic in topics})
            ),
            assignment=partitions(member.assignment),
            target_assignment=partitions(member.target_assignment),
            member_epoch=member.member_epoch,
        )
        for member in _sorted(group.members)
    )


def limited_to_topics(described: Described, topics: Iterable[Topic]) -> Described:
    """Return a Streams group whose assignments contain only partitions that its topics have.

    Task n reads partition n of those topics of its subtopology that have such a partition. A topic
    that is not in `topics` keeps its partitions. Groups of other types are returned unchanged.
    """
    if described.type is not GroupType.STREAMS:
        return described
    counts = {topic.name: topic.partitions for topic in topics}

    def kept(assignment: TopicPartitions) -> TopicPartitions:
        return {
            topic: Partitions(n for n in numbers if n < counts.get(topic, n + 1))
            for topic, numbers in assignment.items()
        }

    return replace(
        described,
        members=tuple(
            replace(
                member,
                assignment=kept(member.assignment),
                target_assignment=kept(member.target_assignment or {}),
            )
            for member in described.members
        ),
    )


def _sorted(members: Iterable[Any]) -> list[Any]:
    return sorted(members, key=lambda member: (member.client_id, member.member_id))


def _by_topic(assignment: Any) -> dict[str, Partitions]:
    return {
        topic.topic_name: Partitions(sorted(topic.partitions))
        for topic in sorted(assignment.topic_partitions, key=lambda each: str(each.topic_name))
    }


_EVERY_TOPIC: Final = 2
_SEVERAL_GROUPS: Final = 8
# Since v10 topics have ids and no names.
_LAST_NAMED: Final = 9


# Topic and partition → committed offset; None where there is none.
Offsets = Mapping[tuple[str, int], int | None]


def committed_offsets(raw: RawCluster, group_id: str, deadline: Deadline) -> Offsets:
    """Return (topic, partition) → committed offset of the group (None: none is committed).

    Raises:
        ConnectError: no broker can be reached.
        RequestError: the coordinator's error, or no answer in time.
    """
    return raw.on_coordinator(
        group_id,
        deadline,
        lambda connection, _: unless_error(
            offsets_of_many(connection, [group_id], deadline)[group_id]
        ),
    )


def offsets_of_many(
    connection: BrokerConnection, group_ids: Sequence[str], deadline: Deadline
) -> dict[str, Offsets | RequestError]:
    """Return group id → the group's committed offsets, or its coordinator's error.

    One request is sent for all groups; before Kafka 3.0, one for each group (OffsetFetch v8,
    KIP-709).

    Raises:
        RequestError: a request got no answer.
    """
    kind = request_class("OffsetFetch")
    version = connection.version(kind, min_version=_EVERY_TOPIC, max_version=_LAST_NAMED)
    asked = [{"group_id": group_id, "topics": None} for group_id in group_ids]
    if asked and version >= _SEVERAL_GROUPS:
        return {
            group.group_id: _offsets(group, group.group_id)
            for group in connection.exchange(message(kind, version, groups=asked), deadline).groups
        }
    return {
        name: _offsets(connection.exchange(message(kind, version, **one), deadline), name)
        for name, one in zip(group_ids, asked, strict=True)
    }


def _offsets(answer: Any, group_id: str) -> Offsets | RequestError:
    if answer.error_code:
        name = error_name(answer.error_code)
        return RequestError(name, f"the offsets of {group_id}: {name}")
    return {
        (topic.name, part.partition_index): (
            part.committed_offset if part.committed_offset >= 0 else None
        )
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }


class GroupLook(NamedTuple):
    """One group's description, and its committed offsets or the error of reading them."""

    described: Described
    offsets: Offsets | RequestError


def look_at(
    connection: BrokerConnection,
    broker: int,
    group_ids: Sequence[str],
    deadline: Deadline,
    later: Callable[[], Deadline],
) -> dict[str, GroupLook | RequestError]:
    """Return group id → description and offsets, or the error of its coordinator `broker`.

    The descriptions are requested until `deadline`, then the committed offsets until the deadline
    that `later()` returns.

    Raises:
        RequestError: a request for descriptions got no answer.
    """
    described = describe_many(connection, broker, group_ids, deadline)
    there = [name for name, one in described.items() if isinstance(one, Described)]
    try:
        offsets: Mapping[str, Offsets | RequestError] = offsets_of_many(connection, there, later())
    except RequestError as error:
        offsets = dict.fromkeys(there, error)
    return {
        name: GroupLook(one, offsets[name]) if isinstance(one, Described) else one
        for name, one in described.items()
    }
