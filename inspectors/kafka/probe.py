"""The read-only JoinGroup probe: does every assignor list that the coordinator holds contain X?

The probe is one JoinGroup (v5 or later, KIP-345) with a made-up member id AND a made-up instance
id, ONE protocol and EMPTY metadata. A classic group's coordinator checks the protocol before the
member. It answers INCONSISTENT_GROUP_PROTOCOL if some member's list lacks the assignor, else
UNKNOWN_MEMBER_ID, and changes nothing. Similar requests do harm: see `join_request`.

The probe is sent only to a group that was just described as classic, of protocol type consumer,
Stable, with members. Sent to an EMPTY KIP-848 group, or since Kafka 4.2 to an EMPTY Streams group
(KIP-1071), it would turn the group into a classic one in the coordinator's memory. The remaining
risk is the time between the description and the request: within it, the last members would have to
leave and the group be converted.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

from rebal.groups.model import (
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Probe,
    ProbeAnswer,
    TopicPartitions,
    Tri,
)
from rebal.inspectors import clock
from rebal.inspectors.errors import ConnectError, RequestError, error_name, unless_error
from rebal.inspectors.kafka.cluster import MOVED, RawCluster
from rebal.inspectors.kafka.describe import (
    CONSUMER,
    NOT_CLASSIC,
    Described,
    describe,
    look_at_classic,
)
from rebal.inspectors.kafka.messages import JoinGroupRequest
from rebal.inspectors.kafka.wire import Connection, Deadline, message

MIN_VERSION: Final = 5
_MAX_VERSION: Final = 9
_SESSION_TIMEOUT_MS: Final = 10_000
_ANSWERS: Final = {"UNKNOWN_MEMBER_ID": Tri.YES, "INCONSISTENT_GROUP_PROTOCOL": Tri.NO}
_INSTANCE_TRIES: Final = 3


class _VoidError(Exception):
    """The reason not to send a (further) probe; every answer so far is void."""


def probe_group(cluster: RawCluster, snapshot: GroupSnapshot, assignors: Sequence[str]) -> Probe:
    """Return the probe's answer for each assignor; the group is described around each request.

    Nothing is sent, and `refused` gives the reason, unless the group meets the conditions of this
    module and still has the members and assignments of `snapshot`. A change between two
    descriptions voids all answers.

    Raises:
        ConnectError: the cluster cannot be reached.
    """
    deadline = cluster.deadline()
    group_id = snapshot.group.group_id
    answers: list[ProbeAnswer] = []
    try:
        before = _just_described(cluster, group_id, deadline)
        _same(_owned(snapshot.members), before, "since it was read")
        for assignor in dict.fromkeys(assignors):
            answer, before = _ask(cluster, before, assignor, _timeout(snapshot), deadline)
            answers.append(answer)
    except _VoidError as why:
        return Probe(refused=str(why))
    except RequestError as error:
        return Probe(refused=f"the group could not be described around the probe: {error.reason}")
    return Probe(answers=tuple(answers))


def join_request(
    group_id: str,
    assignor: str,
    *,
    member_id: str,
    instance_id: str,
    session_timeout_ms: int,
    version: int,
) -> Any:
    """Return the only request that the probe sends; nothing else builds a JoinGroup.

    Each argument prevents harm: an empty member id would create a pending member, without an
    instance id a KIP-848 group would admit the probe, and real subscription bytes could replace a
    member's.

    Raises:
        ValueError: an argument that would be unsafe to send.
    """
    if not member_id or len(instance_id) < 32:
        raise ValueError("the probe needs a made-up member id and a long made-up instance id")
    if not assignor or not group_id:
        raise ValueError("the probe asks one group for one assignor")
    if not MIN_VERSION <= version <= _MAX_VERSION:
        raise ValueError(
            f"the probe is JoinGroup v{MIN_VERSION} to v{_MAX_VERSION}, not v{version}"
        )
    return message(
        JoinGroupRequest,
        version,
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=CONSUMER,
        protocols=[{"name": assignor, "metadata": b""}],
    )


def _just_described(cluster: RawCluster, group_id: str, deadline: Deadline) -> Described:
    def ask(connection: Connection, broker: int) -> Described:
        return unless_error(look_at_classic(connection, broker, group_id, deadline)[1])

    try:
        return _fit(cluster.on_coordinator(group_id, deadline, ask))
    except RequestError as error:
        if error.name != NOT_CLASSIC:
            raise
    described = describe(cluster, group_id, deadline)
    if described.type in (GroupType.STREAMS, GroupType.SHARE):
        raise _VoidError(f"it is a {described.type} group, which has no assignor lists")
    raise _VoidError(
        "it is not a classic group: a KIP-848 group has no assignor lists, and the probe could "
        "harm it"
    )


def _fit(described: Described) -> Described:
    """Return a classic group that may be probed.

    Raises:
        _VoidError: it may not be.
    """
    if described.protocol_type != CONSUMER:
        raise _VoidError(f"its protocol type is {described.protocol_type or 'empty'}, not consumer")
    if described.state is not GroupState.STABLE:
        raise _VoidError(f"it is {described.state.value}, not Stable: try again when it is")
    if not described.members:
        raise _VoidError("it has no members")
    return described


def _owned(members: Sequence[Member]) -> dict[str, TopicPartitions]:
    return {member.member_id: member.assignment for member in members}


def _same(earlier: dict[str, TopicPartitions], now: Described, when: str) -> None:
    later = _owned(now.members)
    if earlier.keys() != later.keys():
        raise _VoidError(f"its members changed {when}: all answers are void, try again")
    if earlier != later:
        raise _VoidError(f"its assignments changed {when}: all answers are void, try again")


def _timeout(snapshot: GroupSnapshot) -> int:
    """Return a session timeout within the broker's limits, where they are known."""
    low, high = (
        int(snapshot.cluster.settings.get(f"group.{bound}.session.timeout.ms", default))
        for bound, default in (("min", "6000"), ("max", "1800000"))
    )
    return max(low, min(_SESSION_TIMEOUT_MS, high))


def _ask(
    cluster: RawCluster, group: Described, assignor: str, timeout_ms: int, deadline: Deadline
) -> tuple[ProbeAnswer, Described]:
    """Return the answer, and the group as it is after it; the first try is sent to `group`.

    Raises:
        _VoidError: the group changed, or may not be probed.
    """
    name = "NONE"
    for _ in range(_INSTANCE_TRIES):
        connection = cluster.node(group.coordinator_id, deadline)
        version = min(connection.versions.get(JoinGroupRequest.API_KEY, (0, -1))[1], _MAX_VERSION)
        if version < MIN_VERSION:
            raise _VoidError(
                f"the broker is too old: the probe needs JoinGroup v{MIN_VERSION} (Kafka 2.3)"
            )
        request = join_request(
            group.group_id,
            assignor,
            member_id=f"rebal-probe-{secrets.token_hex(16)}",
            instance_id=f"rebal-probe-{secrets.token_hex(32)}",
            session_timeout_ms=timeout_ms,
            version=version,
        )
        after: Described | RequestError | None = None
        try:
            (response,), after = look_at_classic(
                connection, group.coordinator_id, group.group_id, deadline, [request]
            )
            name = error_name(response.error_code)
        except RequestError as error:
            name = error.name
        if name == "NONE":
            raise ConnectError(
                f"{group.group_id}: the coordinator admitted the probe, which no known broker "
                "does: stop probing this cluster and report its version.",
                "protocol",
            )
        at = clock.now()
        again = name in MOVED
        if again:
            # The coordinator moves or loads: describe the group again before the next probe.
            time.sleep(min(0.2, deadline.left()))
        earlier = _owned(group.members)
        if isinstance(after, Described) and not again:
            group = _fit(after)
        else:
            group = _just_described(cluster, group.group_id, deadline)
        _same(earlier, group, "while it was probed")
        if not again and name != "FENCED_INSTANCE_ID":
            break
    answer = ProbeAnswer(
        assignor=assignor,
        supported=_ANSWERS.get(name, Tri.CANNOT_TELL),
        at=at,
        error=None if name in _ANSWERS else name,
    )
    return answer, group
