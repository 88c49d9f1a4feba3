"""Offset commits decoded a column at a time: the same as the plain codec, whatever the bytes."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import decode_offset_commit
from rebal.inspectors.fleet.commits.values import VALUES, decode_values


def plain(value: bytes | None) -> dict[str, object]:
    made: dict[str, object] = dict.fromkeys(VALUES.names)
    if value is None:
        return made
    try:
        read = decode_offset_commit(value)
    except WireError as error:
        return made | {"error": str(error)}
    return {
        "version": read.version,
        "offset": read.offset,
        "leader_epoch": read.leader_epoch,
        "metadata": read.metadata,
        "committed_ms": read.commit_timestamp_ms,
        "expires_ms": read.expire_timestamp_ms,
        "topic_id": read.topic_id,
        "error": None,
    }


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A value as Kafka writes it, of any version."""
    version = draw(st.integers(0, 4))
    long = st.integers(-(2**63), 2**63 - 1)
    made = struct.pack(">hq", version, draw(long))
    if version >= 3:
        made += struct.pack(">i", draw(st.integers(-(2**31), 2**31 - 1)))
    text = draw(st.text(max_size=80) | st.just("m" * 200) | st.just("")).encode(
        "utf-8", "surrogatepass"
    )
    size = len(text)
    if version == 4:
        size += 1
        made += bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    else:
        made += struct.pack(">h", size)
    made += text + struct.pack(">q", draw(long))
    if version == 1:
        made += struct.pack(">q", draw(long))
    if version == 4:
        topic_id = draw(st.binary(min_size=16, max_size=16))
        made += draw(
            st.sampled_from(
                [b"\x00", b"\x01\x00\x10" + topic_id, b"\x01\x05\x02ab", b"\x01\x00\x02ab"]
            )
        )
    return made


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    whole = bytearray(draw(written()))
    for _ in range(draw(st.integers(0, 3))):
        whole[draw(st.integers(0, len(whole) - 1))] = draw(st.integers(0, 255))
    return bytes(whole[: draw(st.integers(0, len(whole)))])


VALUE = st.none() | written() | damaged() | st.binary(max_size=40)


@given(st.lists(VALUE, max_size=30), st.sampled_from([pa.binary(), pa.large_binary()]), st.data())
def test_a_column_is_read_as_the_codec_reads_each_value(
    values: list[bytes | None], kind: pa.DataType, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    column = pa.array(values, kind).slice(start, stop - start)
    found = decode_values(column)
    assert found.schema == VALUES
    assert found.to_pylist() == [plain(value) for value in values[start:stop]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_columns_without_a_value(kind: pa.DataType) -> None:
    assert decode_values(pa.array([], kind)).num_rows == 0
    assert decode_values(pa.array([None, None], kind)).to_pylist() == [plain(None)] * 2
