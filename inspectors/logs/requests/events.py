"""Requests of the broker's request log as observations of members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from rebal.groups.clients import family_of
from rebal.groups.evidence.observations import (
    Introduced,
    Joined,
    Left,
    Observation,
    Rebalanced,
    Refused,
)
from rebal.groups.model import Evidence, Software, Source
from rebal.inspectors.logs.requests.lines import Request, objects, text_in

# The errors of JOIN_GROUP after which clients give up; 23 is the only one of a list.
REJECTIONS: Final[Mapping[int, str]] = {
    23: "INCONSISTENT_GROUP_PROTOCOL",
    26: "INVALID_SESSION_TIMEOUT",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
}


class Where(TypedDict):
    """The fields of `Seen`."""

    log: str
    line: int
    origin: str
    local: bool


def seen(request: Request) -> Where:
    """Where the request stands."""
    return Where(log=request.log, line=request.line, origin=request.origin, local=request.local)


class History:
    """What earlier requests said that later ones need, per group."""

    def __init__(self) -> None:
        self.instances: dict[tuple[str, str], str] = {}
        self.generations: dict[str, int] = {}
        # (group, member id) -> the generation in which it was last given partitions
        self.given: dict[tuple[str, str], int] = {}
        self.introduced: set[tuple[str, str]] = set()


def joined(request: Request, history: History) -> Sequence[Observation]:
    """The join of one member, and the rebalance it completed if it shows one.

    A leader is handed the members of a new generation; followers' answers, and those to a
    restarted static member (same generation, KIP-345; `skipAssignment`, KIP-814), prove no
    rebalance.
    """
    body, answer = request.request, request.response
    member_id = text_in(answer, "memberId") or text_in(body, "memberId")
    if not member_id:
        return ()
    instance_id = text_in(body, "groupInstanceId") or None
    replaced = None
    if instance_id is not None:
        key = (request.group_id, instance_id)
        before = history.instances.get(key)
        if before is not None and before != member_id:
            replaced = before
        history.instances[key] = member_id
    generation = answer.get("generationId")
    handed_out = generation if request.error == 0 and isinstance(generation, int) else None
    join = Joined(
        **seen(request),
        group_id=request.group_id,
        member_id=member_id,
        list=_assignors(request),
        accepted=request.error == 0,
        new=not text_in(body, "memberId"),
        at=request.at,
        client_id=request.client_id,
        instance_id=instance_id,
        host=request.host,
        connection=request.connection,
        software=_software(request),
        reason=text_in(body, "reason") or None,
        generation_id=handed_out,
        session_timeout_ms=_timeout(body, "sessionTimeoutMs"),
        # JoinGroup v0 has none: the coordinator takes the session timeout for both.
        rebalance_timeout_ms=_timeout(body, "rebalanceTimeoutMs")
        or _timeout(body, "sessionTimeoutMs"),
        protocol_type=text_in(body, "protocolType") or "consumer",
        replaced_member_id=replaced,
        evidence=_evidence(request),
    )
    if handed_out is None or not answer.get("members") or answer.get("skipAssignment") is True:
        return (join,)
    return (join, *_rebalanced(request, handed_out, text_in(answer, "protocolName"), history))


def synced(request: Request, history: History) -> Sequence[Observation]:
    """The rebalance that the leader's SYNC_GROUP completed; a follower's shows none."""
    generation = request.request.get("generationId")
    if request.error or not isinstance(generation, int) or not request.request.get("assignments"):
        return ()
    assignor = text_in(request.response, "protocolName") or text_in(request.request, "protocolName")
    return _rebalanced(request, generation, assignor, history)


def introduced(request: Request, history: History) -> Sequence[Observation]:
    """The software of a KIP-848 member, at the first of its heartbeats; a heartbeat has no list."""
    member_id = text_in(request.response, "memberId") or text_in(request.request, "memberId")
    software = _software(request)
    key = (request.group_id, member_id)
    if request.error or not member_id or software is None or key in history.introduced:
        return ()
    history.introduced.add(key)
    return (
        Introduced(
            **seen(request),
            group_id=request.group_id,
            member_id=member_id,
            software=software,
            evidence=_evidence(request),
        ),
    )


def refused(request: Request) -> Observation:
    """A join that was answered with one of `REJECTIONS`."""
    return Refused(
        **seen(request),
        error=REJECTIONS[request.error],
        group_id=request.group_id,
        list=_assignors(request),
        at=request.at,
        client_id=request.client_id,
        instance_id=text_in(request.request, "groupInstanceId") or None,
        host=request.host,
        connection=request.connection,
        software=_software(request),
        evidence=_evidence(request),
    )


def left(request: Request, history: History) -> Sequence[Observation]:
    """The members that left: one in LEAVE_GROUP <= v2, a list of them since v3 (KIP-345).

    An administrator may remove a static member by its instance id alone; its member id is then
    the last one that was seen for it, or the answer's, else empty.
    """
    if request.error:
        return ()
    if "members" not in request.request:
        member_id = text_in(request.request, "memberId")
        leaver = Left(
            **seen(request),
            group_id=request.group_id,
            member_id=member_id,
            at=request.at,
            evidence=_evidence(request),
        )
        return (leaver,) if member_id else ()
    answers = objects(request.response.get("members"))
    found = []
    for index, member in enumerate(objects(request.request["members"])):
        answer = answers[index] if index < len(answers) else {}
        if answer.get("errorCode"):
            continue
        instance_id = text_in(member, "groupInstanceId") or None
        key = (request.group_id, instance_id or "")
        member_id = text_in(member, "memberId") or text_in(answer, "memberId")
        member_id = member_id or history.instances.get(key, "")
        history.instances.pop(key, None)
        if member_id or instance_id:
            found.append(
                Left(
                    **seen(request),
                    group_id=request.group_id,
                    member_id=member_id,
                    at=request.at,
                    instance_id=instance_id,
                    reason=text_in(member, "reason") or None,
                    evidence=_evidence(request),
                )
            )
    return tuple(found)


def _rebalanced(
    request: Request, generation: int, assignor: str, history: History
) -> Sequence[Observation]:
    if request.at is None or history.generations.get(request.group_id) == generation:
        return ()
    history.generations[request.group_id] = generation
    return (
        Rebalanced(
            **seen(request),
            group_id=request.group_id,
            generation_id=generation,
            at=request.at,
            assignor=assignor or None,
            evidence=_evidence(request),
        ),
    )


def _timeout(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    return value if isinstance(value, int) and 0 < value < 2**31 else None


def _assignors(request: Request) -> tuple[str, ...]:
    return tuple(
        name for p in objects(request.request.get("protocols")) if (name := text_in(p, "name"))
    )


def _software(request: Request) -> Software | None:
    if request.software_name is None:
        return None
    return Software(
        family=family_of(request.software_name, request.software_version),
        name=request.software_name,
        version=request.software_version,
        evidence=(_evidence(request),),
    )


def _evidence(request: Request) -> Evidence:
    return Evidence(
        source=Source.REQUEST_LOG,
        at=request.at,
        detail=f"{request.where} {request.api} v{request.version}",
    )
