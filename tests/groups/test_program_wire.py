"""What Streams and Connect put into their joins: real bytes, and any bytes at all."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import WireError
from rebal.groups.model import Group, GroupSnapshot, Member, Running, Subscription, WorkerState
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.groups.snapshot.redact import redact
from rebal.groups.streams import releases_of, user_data_of
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.user_data import (
    CONNECTOR,
    StreamsUserData,
    WorkerAssignment,
    WorkerMetadata,
    decode_streams,
    decode_worker,
    decode_worker_assignment,
)
from tests.encoders import HIGHEST_STREAMS, encode_streams, encode_worker, encode_worker_assignment

# Joins of real programs, as Kafka 4.1.1's request log printed them.
SUBSCRIPTIONS = {
    "2.3.1": "AAAAAAABAAF0AAAAJAAAAAQAAAAE2bOgOtznRfWJuzGOtDOANgAAAAAAAAAAAAAAAA==",
    "2.3.1 from 1.1": "AAAAAAABAAF0AAAAIAAAAAJSsNCb5TNA4rv0yjrO3PJfAAAAAAAAAAAAAAAA",
    "3.9.1": "AAMAAAABAAF0AAAAKQAAAAsAAAALyp9u2nA0T1OLA8nCVNO/QAAAAAAAAAAA"
    "AwAAAAAAAAAAAAAAAQABdAAAAAYA"
    "AAAAAAAAAQAAAAIAAAADAAAABAAAAAUAAAAB//8=",
}
WORKERS = {
    "default": "AAAAF2h0dHA6Ly8xMjcuMC4wLjE6MzkxNjMv//////////8=",
    "compatible": "AAEAF2h0dHA6Ly8xMjcuMC4wLjE6MzI4ODcvAAAAAAAAAAUAAABwAAEAAAAn"
    "dzEtYTQ0MjA0YTgtYTZkZS00OTVh"
    "LTgzNDMtYzk0MzFkMTQzY2Y1ABdodHRwOi8vMTI3LjAuMC4xOjMyODg3LwAAAAAAAAAFAAAAAQAEc2luawAAAAP/////"
    "AAAAAAAAAAEAAAAAAAAAAA==",
    "sessioned": "AAIAF2h0dHA6Ly8xMjcuMC4wLjE6MzI4ODcvAAAAAAAAAAUAAABwAAIAAAAn"
    "dzEtYTQ0MjA0YTgtYTZkZS00OTVh"
    "LTgzNDMtYzk0MzFkMTQzY2Y1ABdodHRwOi8vMTI3LjAuMC4xOjMyODg3LwAAAAAAAAAFAAAAAQAEc2luawAAAAP/////"
    "AAAAAAAAAAEAAAAAAAAAAA==",
}
ASSIGNED = (
    "AAAAAAAndzEtNzJiOTkxYjItODllMS00MzkxLWIwMDYtNjc1NWRhYmYyMGE5ABdodHRwOi8vMTI3LjAuMC4xOjM5MTYz"
    "LwAAAAAAAAAEAAAAAQAEc2luawAAAAL/////AAAAAQ=="
)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=8)
tasks = st.lists(st.tuples(text, st.lists(_INT32, max_size=3).map(tuple)), max_size=3).map(tuple)


@st.composite
def user_data(draw: st.DrawFn) -> StreamsUserData:
    version = draw(st.integers(1, HIGHEST_STREAMS + 2) | st.integers(1, 2**31 - 1))
    return StreamsUserData(
        version=version,
        latest=draw(st.integers(version, 2**31 - 1)) if version >= 3 else None,
        process_id=draw(st.uuids()) if version <= HIGHEST_STREAMS else None,
        rest=draw(st.binary(max_size=12)),
    )


@st.composite
def assignments(draw: st.DrawFn) -> WorkerAssignment:
    version = draw(st.integers(0, 3))
    return WorkerAssignment(
        version=version,
        error=draw(st.integers(-(2**15), 2**15 - 1)),
        leader=draw(text),
        leader_url=draw(text),
        config_offset=draw(_INT64),
        assigned=draw(st.none() | tasks) if version else draw(tasks),
        revoked=draw(st.none() | tasks) if version else None,
        delay_ms=draw(_INT32) if version else 0,
    )


@st.composite
def workers(draw: st.DrawFn) -> WorkerMetadata:
    version = draw(st.integers(0, 3))
    return WorkerMetadata(
        version=version,
        url=draw(text),
        config_offset=draw(_INT64),
        assignment=draw(st.none() | assignments()) if version else None,
    )


@given(user_data(), workers(), assignments())
def test_any_value_survives_its_bytes(
    data: StreamsUserData, worker: WorkerMetadata, assignment: WorkerAssignment
) -> None:
    assert decode_streams(encode_streams(data)) == data
    assert decode_worker(encode_worker(worker)) == worker
    assert decode_worker_assignment(encode_worker_assignment(assignment)) == assignment


CODECS: list[tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = [
    (decode_streams, encode_streams),
    (decode_worker, encode_worker),
    (decode_worker_assignment, encode_worker_assignment),
]


@pytest.mark.parametrize(("decode", "encode"), CODECS, ids=lambda one: one.__name__)
@given(data=st.binary(max_size=60) | st.builds(bytes.__add__, st.just(bytes([0, 1])), st.binary()))
def test_any_bytes_are_read_and_written_again_or_refused(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], data: bytes
) -> None:
    try:
        read = decode(data)
    except WireError:
        return
    assert encode(read) == data


def user_data_sent(program: str) -> bytes:
    return decode_subscription(base64.b64decode(SUBSCRIPTIONS[program])).user_data


WHOLE: list[tuple[Callable[[bytes], Any], Callable[[Any], bytes], bytes]] = [
    *((decode_streams, encode_streams, user_data_sent(program)) for program in SUBSCRIPTIONS),
    *((decode_worker, encode_worker, base64.b64decode(text)) for text in WORKERS.values()),
    (decode_worker_assignment, encode_worker_assignment, base64.b64decode(ASSIGNED)),
]


@pytest.mark.parametrize(("decode", "encode", "whole"), WHOLE)
def test_real_bytes_come_back_and_every_cut_is_read_or_refused(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], whole: bytes
) -> None:
    refused = 0
    for end in range(len(whole)):
        try:
            assert encode(decode(whole[:end])) == whole[:end]
        except WireError:
            refused += 1
    assert refused
    assert encode(decode(whole)) == whole


@pytest.mark.parametrize(
    ("program", "version", "latest", "releases"),
    [
        ("2.3.1", 4, 4, ">= 2.1, < 2.4"),
        ("2.3.1 from 1.1", 2, None, "< 2.4"),
        ("3.9.1", 11, 11, ">= 3.4"),
    ],
)
def test_a_streams_program_tells_its_versions(
    program: str, version: int, latest: int | None, releases: str
) -> None:
    subscription = decode_subscription(base64.b64decode(SUBSCRIPTIONS[program]))
    told = user_data_of(subscription)
    assert (told.version, told.latest) == (version, latest)
    assert releases_of(subscription) == releases


def test_user_data_that_is_not_streams_own_tells_nothing() -> None:
    for data in (None, b"", bytes(40), b"\x00\x00\x00\x0b"):
        assert releases_of(Subscription(version=3, user_data=data)) is None
    # upgrade.from=1.1 makes a new program write the old form.
    old = encode_streams(StreamsUserData(version=2, process_id=UUID(int=7)))
    assert releases_of(Subscription(version=3, user_data=old)) is None


def test_workers_tell_their_address_and_what_they_run() -> None:
    eager = decode_worker(base64.b64decode(WORKERS["default"]))
    assert (eager.version, eager.url, eager.assignment) == (0, "http://127.0.0.1:39163/", None)
    for version, name in enumerate(("compatible", "sessioned"), 1):
        told = decode_worker(base64.b64decode(WORKERS[name]))
        assert (told.version, told.assignment.version) == (version, version)
        assert told.assignment.assigned == (("sink", (CONNECTOR, 0, 1)),)
    given_by_leader = decode_worker_assignment(base64.b64decode(ASSIGNED))
    assert given_by_leader.assigned == (("sink", (CONNECTOR, 1)),)


def test_a_redacted_worker_has_no_address() -> None:
    running = (Running("orders-sink", itself=True, tasks=(0, 2)), Running("audit", tasks=(1,)))
    worker = WorkerState(url="http://connect-7.example.org:8083/", running=running)
    assert (worker.connectors, worker.tasks) == (1, 3)
    member = Member(member_id="w-1", client_id="w", worker=worker)
    group = Group(group_id="g", protocol_type="connect")
    at = datetime(2026, 11, 21, tzinfo=UTC)
    made = redact(GroupSnapshot(group=group, captured_at=at, members=(member,)))
    assert made.members[0].worker == WorkerState(url="", running=running)
    assert "example" not in dump_snapshot(made, "json")
