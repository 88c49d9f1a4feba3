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

import secrets
from collections.abc import Sequence
from typing import Any, Final

from rebal.groups.model import (
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Probe,
    ProbeAnswer,
    Tri,
)
from rebal.inspectors import clock
from rebal.inspectors.errors import ConnectError, RequestError, error_name
from rebal.inspectors.kafka.cluster import MOVED_OR_LOADING, RawCluster
from rebal.inspectors.kafka.describe import (
    CONSUMER,
    Described,
    describe,
    look_at_classic,
)
from rebal.inspectors.kafka.wire import BrokerConnection, message, request_class

MIN_VERSION: Final = 5
_MAX_VERSION: Final = 9
_SESSION_TIMEOUT_MS: Final = 10_000
_ANSWERS: Final = {"UNKNOWN_MEMBER_ID": Tri.YES, "INCONSISTENT_GROUP_PROTOCOL": Tri.NO}
_AGAIN: Final = (*MOVED_OR_LOADING, "FENCED_INSTANCE_ID")
_TRIES: Final = 3


def probe_group(cluster: RawCluster, snapshot: GroupSnapshot, assignors: Sequence[str]) -> Probe:
    """Probe a group: for each assignor, return whether all assignor lists of the group contain it.

    The group is described before and after each request. It is probed only if it meets this
    module's conditions (classic, consumer, Stable, with members) and still has the members and
    assignments of `snapshot`. If not, or if they change meanwhile, the result has the reason
    instead of answers. If the coordinator moves or loads, the probe starts again, up to three times
    in all.

    Raises:
        ConnectError: the cluster cannot be reached.
    """
    deadline = cluster.deadline()
    group_id = snapshot.group.group_id
    for _ in range(_TRIES):
        try:
            return probe_groups(
                cluster, [(snapshot, assignors)], cluster.coordinator(group_id, deadline)
            )[group_id]
        except (KeyError, RequestError):
            pass
        try:
            # Waits while the coordinator loads the group.
            now = describe(cluster, group_id, deadline)
        except RequestError as error:
            return undescribed_probe(error)
        if why := _difference(snapshot, now):
            return Probe(refused=why)
    return Probe(refused="its coordinator moves or loads: try again")


def undescribed_probe(error: RequestError) -> Probe:
    """Return the result of a probe without answers: describing the group failed with `error`."""
    return Probe(refused=f"the group could not be described around the probe: {error.reason}")


def probe_groups(
    cluster: RawCluster, wanted: Sequence[tuple[GroupSnapshot, Sequence[str]]], broker: int
) -> dict[str, Probe]:
    """Probe groups that `broker` coordinates; return group id → result of the probe.

    `wanted` pairs each group with the assignors to probe for. Each round probes every group for one
    assignor, then describes all groups together. Groups that changed meanwhile, and groups whose
    coordinator moved or loads, are missing from the result.

    Raises:
        ConnectError: the cluster cannot be reached.
        RequestError: the broker did not answer.
    """
    deadline = cluster.deadline()
    found: dict[str, Probe] = {}
    left: dict[str, GroupSnapshot] = {}
    for snapshot, _ in wanted:
        group = snapshot.group
        why = _unfit(group, snapshot.members)
        if why is None and _version(cluster.node(broker, deadline)) < MIN_VERSION:
            why = f"the broker is too old: the probe needs JoinGroup v{MIN_VERSION} (Kafka 2.3)"
        if why is None:
            left[group.group_id] = snapshot
        else:
            found[group.group_id] = Probe(refused=why)
    asked = {one.group.group_id: tuple(dict.fromkeys(names)) for one, names in wanted}
    answers: dict[str, tuple[ProbeAnswer, ...]] = dict.fromkeys(left, ())
    # The first turn only describes: each probe lies between two descriptions.
    for turn in range(-1, max((len(asked[name]) for name in left), default=-1)):
        probed = {name: asked[name][turn] for name in left if 0 <= turn < len(asked[name])}
        connection = cluster.node(broker, deadline)
        responses, looks = look_at_classic(
            connection,
            broker,
            list(left),
            deadline,
            [
                _join(left[name], assignor, _version(connection))
                for name, assignor in probed.items()
            ],
        )
        for (name, assignor), response in zip(probed.items(), responses, strict=True):
            answer = _answer(name, assignor, response)
            answers[name] += (answer,)
            if answer.error in _AGAIN:
                del left[name]
        left = {
            name: left[name]
            for name, look in looks.items()
            if name in left and isinstance(look, Described) and not _difference(left[name], look)
        }
    return found | {name: Probe(answers=answers[name]) for name in left}


def join_request(
    group_id: str,
    assignor: str,
    *,
    member_id: str,
    instance_id: str,
    session_timeout_ms: int,
    version: int,
) -> Any:
    """Return the JoinGroup request of the probe; no other function builds a JoinGroup.

    The arguments keep the request harmless. An empty member id would create a pending member.
    Without an instance id, a KIP-848 group would admit the probe. Real subscription bytes could
    replace a member's.

    Raises:
        ValueError: an argument would make the request unsafe.
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
        request_class("JoinGroup"),
        version,
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=CONSUMER,
        protocols=[{"name": assignor, "metadata": b""}],
    )


def _unfit(group: Group, members: Sequence[Member]) -> str | None:
    """Return why the group may not be probed; None if it may."""
    rows = (
        (
            group.type in (GroupType.STREAMS, GroupType.SHARE),
            f"it is a {group.type} group, which has no assignor lists",
        ),
        (
            group.type is not GroupType.CLASSIC,
            "it is not a classic group: a KIP-848 group has no assignor lists, and the probe could "
            "harm it",
        ),
        (
            group.protocol_type != CONSUMER,
            f"its protocol type is {group.protocol_type or 'empty'}, not consumer",
        ),
        (
            group.state is not GroupState.STABLE,
            f"it is {group.state.value}, not Stable: try again when it is",
        ),
        (not members, "it has no members"),
    )
    return next((why for holds, why in rows if holds), None)


def _difference(snapshot: GroupSnapshot, now: Described) -> str | None:
    """Return why the group, as described `now`, may no longer be probed; None if it may.

    It may be probed if it meets the probe's conditions and has the members and assignments of
    `snapshot`.
    """
    was = {member.member_id: member.assignment for member in snapshot.members}
    owned = {member.member_id: member.assignment for member in now.members}
    unfit = _unfit(now, now.members)
    if unfit is not None or was == owned:
        return unfit
    what = "assignments" if was.keys() == owned.keys() else "members"
    return f"its {what} changed since it was read: all answers are void, try again"


def _version(connection: BrokerConnection) -> int:
    return min(
        connection.versions.get(request_class("JoinGroup").API_KEY, (0, -1))[1], _MAX_VERSION
    )


def _join(snapshot: GroupSnapshot, assignor: str, version: int) -> Any:
    """Return the probe request for one assignor, with made-up member and instance ids.

    Its session timeout is within the broker's limits.
    """
    low, high = (
        int(snapshot.cluster.settings.get(f"group.{bound}.session.timeout.ms", default))
        for bound, default in (("min", "6000"), ("max", "1800000"))
    )
    return join_request(
        snapshot.group.group_id,
        assignor,
        member_id=f"rebal-probe-{secrets.token_hex(16)}",
        instance_id=f"rebal-probe-{secrets.token_hex(32)}",
        session_timeout_ms=max(low, min(_SESSION_TIMEOUT_MS, high)),
        version=version,
    )


def _answer(group_id: str, assignor: str, response: Any) -> ProbeAnswer:
    """Return the answer that a JoinGroup response to the probe gives for `assignor`.

    Raises:
        ConnectError: the coordinator admitted the probe as a member.
    """
    if not response.error_code:
        raise ConnectError(
            f"{group_id}: the coordinator admitted the probe, which no known broker "
            "does: stop probing this cluster and report its version.",
            "protocol",
        )
    name = error_name(response.error_code)
    return ProbeAnswer(
        assignor=assignor,
        supported=_ANSWERS.get(name, Tri.CANNOT_TELL),
        at=clock.now(),
        error=None if name in _ANSWERS else name,
    )
