"""The coordinator's view of one group: `describe` and `committed_offsets`.

Sources: DescribeGroups (instance ids since v4, KIP-345; an error for a missing group since v6,
KIP-1043), ConsumerGroupDescribe (KIP-848, KIP-1099), ListGroups v5 for streams and share groups.

Offsets are read with a plain OffsetFetch. librdkafka's admin calls to a coordinator abort the whole
process if the connection drops at the wrong moment (confluentinc/librdkafka#4605, cause in #5397),
and a watch must survive that.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from msgspec.structs import replace

from rebal.groups.assignors.connect import Given, after, running_of, work_of
from rebal.groups.errors import WireError
from rebal.groups.model import (
    GroupState,
    GroupType,
    Member,
    Record,
    Subscription,
    TopicPartitions,
    WorkerState,
)
from rebal.groups.snapshot.compact import Partitions
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.user_data import decode_worker, decode_worker_assignment
from rebal.inspectors.errors import RequestError, error_name
from rebal.inspectors.kafka.cluster import RawCluster, retry
from rebal.inspectors.kafka.wire import (
    Connection,
    ConsumerGroupDescribeRequest,
    Deadline,
    message,
)

CONSUMER: Final = "consumer"
CONNECT: Final = "connect"
_STATES: Final = {state.value: state for state in GroupState}
# Only the list of groups shows these types.
_LISTED: Final = {kind.value: kind for kind in (GroupType.STREAMS, GroupType.SHARE)}
_MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}
_NOT_THERE: Final = "GROUP_ID_NOT_FOUND"
_NO_RIGHTS: Final = -(2**31)


class Described(Record, frozen=True, kw_only=True):
    """One description of a group; `operations` are the user's AclOperation codes on it."""

    group_id: str
    type: GroupType
    state: GroupState
    at: datetime
    coordinator_id: int
    protocol_type: str | None = None
    assignor: str | None = None
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    members: tuple[Member, ...] = ()
    operations: frozenset[int] | None = None


def describe(
    cluster: RawCluster, group_id: str, deadline: Deadline, *, operations: bool = False
) -> Described:
    """Return the group as its coordinator holds it now; waits while the coordinator loads it.

    Raises:
        RequestError: GROUP_ID_NOT_FOUND (no such group), GROUP_AUTHORIZATION_FAILED, or no answer.
        ConnectError: the cluster cannot be reached.
    """

    def ask() -> Described:
        broker = cluster.coordinator(group_id, deadline)
        connection = cluster.node(broker, deadline)
        classic = _classic(connection, broker, group_id, deadline, operations)
        if classic is not None:
            return classic
        consumer = _consumer(connection, broker, group_id, deadline, operations)
        if consumer is not None:
            return consumer
        return _listed(connection, broker, group_id, deadline)

    return retry(ask, deadline)


def is_proven_classic(
    cluster: RawCluster, coordinator_id: int, group_id: str, deadline: Deadline
) -> bool:
    """Return whether the coordinator itself says that the group is not a KIP-848 group.

    ConsumerGroupDescribe answers GROUP_ID_NOT_FOUND for a classic group. A coordinator without that
    request, or with UNSUPPORTED_VERSION, holds classic groups only.
    """
    connection = cluster.node(coordinator_id, deadline)
    if not connection.supports(ConsumerGroupDescribeRequest):
        return True
    response = connection.send(ConsumerGroupDescribeRequest, deadline, group_ids=[group_id])
    return error_name(response.groups[0].error_code) in (_NOT_THERE, "UNSUPPORTED_VERSION")


def _check(code: int, message: str | None, group_id: str) -> None:
    if code:
        name = error_name(code)
        raise RequestError(name, f"{group_id}: {(message or name).rstrip('.')}")


def _operations(field: int) -> frozenset[int] | None:
    """Return the codes in a bit field of rights; None if the broker did not send it."""
    if field == _NO_RIGHTS:
        return None
    return frozenset(code for code in range(31) if field & (1 << code))


def _classic(
    connection: Connection, broker: int, group_id: str, deadline: Deadline, operations: bool
) -> Described | None:
    response = connection.send(
        DescribeGroupsRequest,
        deadline,
        groups=[group_id],
        include_authorized_operations=operations,
    )
    group = response.groups[0]
    if error_name(group.error_code) == _NOT_THERE:
        return None
    _check(group.error_code, group.error_message, group_id)
    state = _STATES.get(group.group_state, GroupState.UNKNOWN)
    if state is GroupState.DEAD:
        return None
    parsed = group.protocol_type == CONSUMER
    return Described(
        group_id=group_id,
        type=GroupType.CLASSIC,
        state=state,
        at=datetime.now(UTC),
        coordinator_id=broker,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data or None,
        members=tuple(
            _worker(member) if group.protocol_type == CONNECT else _classic_member(member, parsed)
            for member in _sorted(group.members)
        ),
        operations=None
        if group.authorized_operations is None
        else frozenset(group.authorized_operations),
    )


def _classic_member(member: Any, parsed: bool) -> Member:
    subscription: Subscription | None = None
    error: str | None = None
    assignment: TopicPartitions = {}
    user_data: bytes | None = None
    # Outside Stable the coordinator sends both fields empty: there is no subscription to decode.
    if parsed and member.member_metadata:
        try:
            subscription = decode_subscription(bytes(member.member_metadata))
        except WireError as wrong:
            error = str(wrong)
    if parsed and member.member_assignment:
        try:
            decoded = decode_assignment(bytes(member.member_assignment))
            assignment, user_data = decoded.partitions, decoded.user_data
        except WireError as wrong:
            error = error or str(wrong)
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        instance_id=member.group_instance_id,
        rack=subscription.rack_id if subscription else None,
        subscription=subscription,
        subscription_error=error,
        subscribed_topics=subscription.topics if subscription else (),
        assignment=assignment,
        assignment_user_data=user_data,
    )


def _worker(member: Any) -> Member:
    made = _classic_member(member, parsed=False)
    if not member.member_metadata:
        return made
    try:
        reported = decode_worker(bytes(member.member_metadata))
    except WireError as wrong:
        return replace(made, subscription_error=str(wrong))
    if not member.member_assignment:
        return replace(made, worker=WorkerState(url=reported.url))
    try:
        given = decode_worker_assignment(bytes(member.member_assignment))
    except WireError as wrong:
        return replace(made, worker=WorkerState(url=reported.url), subscription_error=str(wrong))
    # The incremental protocols send only changes, relative to the worker's own report.
    before = (
        reported.assignment.assigned if given.version and reported.assignment is not None else ()
    )
    now = after(
        work_of(before), Given(assigned=work_of(given.assigned), revoked=work_of(given.revoked))
    )
    state = WorkerState(
        url=reported.url,
        running=running_of(now),
        leader=given.leader == made.member_id,
        held_back_ms=given.delay_ms,
    )
    return replace(made, worker=state)


def _consumer(
    connection: Connection, broker: int, group_id: str, deadline: Deadline, operations: bool
) -> Described | None:
    if not connection.supports(ConsumerGroupDescribeRequest):
        return None
    response = connection.send(
        ConsumerGroupDescribeRequest,
        deadline,
        group_ids=[group_id],
        include_authorized_operations=operations,
    )
    group = response.groups[0]
    if error_name(group.error_code) in (_NOT_THERE, "UNSUPPORTED_VERSION"):
        return None
    _check(group.error_code, group.error_message, group_id)
    return Described(
        group_id=group_id,
        type=GroupType.CONSUMER,
        state=_STATES.get(group.group_state, GroupState.UNKNOWN),
        at=datetime.now(UTC),
        coordinator_id=broker,
        protocol_type=CONSUMER,
        assignor=group.assignor_name or None,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(_consumer_member(member) for member in _sorted(group.members)),
        operations=_operations(group.authorized_operations),
    )


def _consumer_member(member: Any) -> Member:
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        instance_id=member.instance_id,
        rack=member.rack_id,
        subscribed_topics=tuple(sorted(member.subscribed_topic_names)),
        subscribed_regex=member.subscribed_topic_regex or None,
        assignment=_by_topic(member.assignment),
        target_assignment=_by_topic(member.target_assignment),
        member_epoch=member.member_epoch,
        protocol_type=_MEMBER_TYPES.get(member.member_type),
    )


def _listed(connection: Connection, broker: int, group_id: str, deadline: Deadline) -> Described:
    """Return a streams or share group, which no description covers, from the list of groups."""
    response = connection.send(ListGroupsRequest, deadline)
    for group in response.groups if response.error_code == 0 else ():
        kind = _LISTED.get((group.group_type or "").lower())
        if group.group_id == group_id and kind is not None:
            return Described(
                group_id=group_id,
                type=kind,
                state=_STATES.get(group.group_state, GroupState.UNKNOWN),
                at=datetime.now(UTC),
                coordinator_id=broker,
                protocol_type=group.protocol_type,
            )
    raise RequestError(_NOT_THERE, f"{group_id}: no such group")


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


def committed_offsets(
    raw: RawCluster, group_id: str, deadline: Deadline
) -> dict[tuple[str, int], int | None]:
    """Return the committed offset of each topic and partition; None where there is none.

    Raises:
        ConnectError: no broker can be reached.
        RequestError: the coordinator's error, or no answer in time.
    """

    def ask(connection: Connection) -> Any:
        version = connection.version(
            OffsetFetchRequest, min_version=_EVERY_TOPIC, max_version=_LAST_NAMED
        )
        group = {"group_id": group_id, "topics": None}
        fields = {"groups": [group]} if version >= _SEVERAL_GROUPS else group
        response = connection.exchange(message(OffsetFetchRequest, version, **fields), deadline)
        answer = response.groups[0] if version >= _SEVERAL_GROUPS else response
        if answer.error_code:
            name = error_name(answer.error_code)
            raise RequestError(name, f"the offsets of {group_id}: {name}")
        return answer

    answer = raw.on_coordinator(group_id, deadline, ask)
    return {
        (topic.name, part.partition_index): (
            part.committed_offset if part.committed_offset >= 0 else None
        )
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }
