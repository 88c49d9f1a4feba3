"""User data of the sticky assignors, of Streams and Connect: real bytes, and any bytes at all."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import WireError
from rebal.groups.model import Subscription
from rebal.groups.streams import releases_of, user_data_of
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.user_data import (
    StickyUserData,
    StreamsUserData,
    WorkerAssignment,
    WorkerMetadata,
    decode_cooperative_sticky,
    decode_sticky,
    decode_streams,
    decode_worker,
    decode_worker_assignment,
    encode_cooperative_sticky,
    encode_sticky,
)
from tests.encoders import HIGHEST_STREAMS, encode_streams, encode_worker, encode_worker_assignment
from tests.groups.written import int32, int64, short
from tests.tables import table

SUBSCRIPTIONS = table("user_data", "subscriptions")
WORKERS = table("user_data", "workers")
ASSIGNED = table("user_data", "assigned")
tasks = st.lists(st.tuples(short, st.lists(int32, max_size=3).map(tuple)), max_size=3).map(tuple)


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
        leader=draw(short),
        leader_url=draw(short),
        config_offset=draw(int64),
        assigned=draw(st.none() | tasks) if version else draw(tasks),
        revoked=draw(st.none() | tasks) if version else None,
        delay_ms=draw(int32) if version else 0,
    )


@st.composite
def workers(draw: st.DrawFn) -> WorkerMetadata:
    version = draw(st.integers(0, 3))
    return WorkerMetadata(
        version=version,
        url=draw(short),
        config_offset=draw(int64),
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
    assert decode(encode(read)) == read


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
            decode(whole[:end])
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


previous = st.dictionaries(short, st.lists(int32, min_size=1, max_size=4), max_size=3).map(
    lambda topics: tuple((topic, number) for topic, some in topics.items() for number in some)
)
values = st.builds(StickyUserData, previous=previous, generation=st.none() | int32)


@pytest.mark.parametrize(("data", "expected"), table("user_data", "sticky"))
def test_user_data_is_read_as_java_reads_it(data: str | None, expected: dict[str, Any]) -> None:
    """A generation that is cut off is none; Java forgets what it cannot parse."""
    sent = None if data is None else bytes.fromhex(data)
    assert decode_sticky(sent) == StickyUserData(**expected)


@given(values)
def test_any_sticky_value_survives_its_bytes(value):
    assert decode_sticky(encode_sticky(value)) == value


@given(st.binary(max_size=60) | values.map(encode_sticky).map(lambda data: data[:-3]))
def test_any_bytes_give_a_value(data):
    read = decode_sticky(data)
    if read.readable and data:
        assert decode_sticky(encode_sticky(read)) == read


@given(st.binary(max_size=12))
def test_cooperative_user_data_is_the_first_four_bytes(data):
    assert decode_cooperative_sticky(None) is None
    read = decode_cooperative_sticky(data)
    assert read == (int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else -1)
    if len(data) >= 4:
        assert encode_cooperative_sticky(read) == data[:4]


@pytest.mark.parametrize("generation", [2**31, -(2**31) - 1])
def test_a_generation_out_of_range_is_refused(generation):
    with pytest.raises(WireError):
        encode_cooperative_sticky(generation)
