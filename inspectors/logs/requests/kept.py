"""What Kafka Streams members did with their partitions when they rejoined, by the request log.

A Streams member's list is always [stream], so only this shows which rebalance protocol it runs: a
join that names owned partitions is of a COOPERATIVE member, and one that names none, though the
generation it comes from had given it some, of an EAGER one (KIP-429; generations by KIP-792).
"""

from __future__ import annotations

import base64
import binascii

from rebal.groups.errors import WireError
from rebal.groups.evidence.observations import Ran
from rebal.groups.model import Evidence, RebalanceProtocol, Source
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.inspectors.logs.requests.events import History, seen
from rebal.inspectors.logs.requests.lines import Request, objects, text_in

_STREAM = "stream"


def remember_given(request: Request, history: History) -> None:
    """Keep whether a SYNC_GROUP gave its member partitions, for its next join."""
    generation = request.request.get("generationId")
    member_id = text_in(request.request, "memberId")
    if request.error or not member_id or not isinstance(generation, int):
        return
    history.given.pop((request.group_id, member_id), None)
    try:
        given = decode_assignment(_bytes(text_in(request.response, "assignment"))).partitions
    except WireError:
        return
    if any(len(numbers) for numbers in given.values()):
        history.given[request.group_id, member_id] = generation


def kept(request: Request, history: History) -> tuple[Ran, ...]:
    """What a member's join shows of the rebalance protocol it runs; nothing where it does not."""
    protocols = objects(request.request.get("protocols"))
    member_id = text_in(request.request, "memberId")
    if [text_in(p, "name") for p in protocols] != [_STREAM] or not member_id:
        return ()
    try:
        sent = decode_subscription(_bytes(text_in(protocols[0], "metadata")))
    except WireError:
        return ()
    count = sum(map(len, (sent.owned_partitions or {}).values()))
    given = history.given.get((request.group_id, member_id))
    if count:
        value, what = RebalanceProtocol.COOPERATIVE, f"kept {count} partitions"
    elif given is not None and given == sent.generation_id:
        value, what = RebalanceProtocol.EAGER, "gave up all its partitions"
    else:
        return ()
    detail = f"{request.where} {request.api} v{request.version}: {what}"
    said = Evidence(source=Source.REQUEST_LOG, at=request.at, detail=detail)
    ran = Ran(
        **seen(request),
        group_id=request.group_id,
        member_id=member_id,
        value=value,
        evidence=said,
    )
    return (ran,)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
