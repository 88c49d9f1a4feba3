"""Log segments as bytes: transactions, cut-off ends, bad batches."""

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka.record import default_records
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.sources.segments import (
    ABORTED,
    CONTROL,
    CUT_OFF,
    OPEN,
    find_cluster_id_of,
    find_segments,
    read_partition,
)
from rebal.inspectors.fleet.sources.source import SOURCE

SEGMENT = f"{0:020}.log"
HEAD = DefaultRecordBatch.HEADER_STRUCT
Pair = tuple[bytes | None, bytes | None]
PAIRS: list[Pair] = [(b"k%d" % n, b"v" * n if n % 3 else None) for n in range(40)]


def batch(
    offset: int, pairs: Sequence[Pair], *, producer: int = -1, attributes: int = 0, codec: int = 0
) -> bytes:
    """One record batch v2 as a broker stores it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        batch_size=1 << 20,
    )
    for number, (key, value) in enumerate(pairs):
        builder.append(number, 1_000 + offset + number, key, value, [])
    made = bytearray(builder.build())
    struct.pack_into(">q", made, 0, offset)
    made[22] |= attributes
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
    return bytes(made)


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return batch(offset, [(key, b"\x00" * 6)], producer=producer, attributes=0x20)


def rows(tmp_path: Path, *segments: bytes) -> list[dict[str, object]]:
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    for number, data in enumerate(segments):
        (folder / f"{number * 100:020}.log").write_bytes(data)
    (share,) = find_segments([str(folder)])
    assert share[0] == 7
    made: list[dict[str, object]] = []
    for each in read_partition(share):
        assert each.schema == SOURCE
        made += each.to_pylist()
    return made


def records(found: list[dict[str, object]]) -> dict[object, Pair]:
    return {row["offset"]: (row["key"], row["value"]) for row in found if row["problem"] is None}  # type: ignore[misc]


def problems(found: list[dict[str, object]]) -> Counter[object]:
    return Counter(row["problem"] for row in found if row["problem"] is not None)


@pytest.mark.parametrize("codec", [0, 1], ids=["none", "gzip"])
def test_records_are_read_with_their_places(tmp_path: Path, codec: int) -> None:
    found = rows(tmp_path, batch(3, PAIRS, codec=codec), batch(50, PAIRS[:2], codec=codec))
    expected = {3 + n: pair for n, pair in enumerate(PAIRS)}
    expected |= {50: PAIRS[0], 51: PAIRS[1]}
    assert records(found) == expected
    assert not problems(found)
    assert {row["partition"] for row in found} == {7}
    assert found[0]["source"] == f"{0:020}.log"
    assert found[0]["timestamp"].timestamp() == 1.003  # type: ignore[attr-defined]


def test_a_codec_without_its_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_records.codecs, "has_zstd", lambda: False)
    with pytest.raises(DocumentError, match=r"0+\.log: .* zstd compression .*: pip install "):
        rows(tmp_path, batch(0, PAIRS, attributes=4))


def test_older_formats(tmp_path: Path) -> None:
    parts = []
    for magic in (0, 1):
        builder = MemoryRecordsBuilder(magic, 0, 1 << 16, offset=magic * 10)
        builder.append(1_000, b"k", b"v")
        builder.close()
        parts.append(bytes(builder.buffer()))
    assert records(rows(tmp_path, b"".join(parts))) == {0: (b"k", b"v"), 10: (b"k", b"v")}


@pytest.mark.parametrize(
    ("segments", "offsets", "wrong"),
    [
        pytest.param(
            [
                batch(0, PAIRS[:1], producer=1)
                + batch(1, PAIRS[1:3], producer=2)
                + batch(3, PAIRS[3:4]),
                marker(4, 2, commit=False)
                + batch(5, PAIRS[5:6], producer=1)
                + marker(6, 1, commit=True)
                + batch(7, PAIRS[7:8], producer=2),
            ],
            [0, 3, 5],
            {CONTROL: 2, ABORTED: 2, OPEN: 1},
            id="transactions count when they are committed",
        ),
        pytest.param(
            [
                batch(0, PAIRS[:2], producer=1)
                + batch(2, PAIRS[2:3], producer=2)
                + batch(3, PAIRS[3:5])
                + marker(5, 1, commit=True)
            ],
            [0, 1],
            {OPEN: 4},
            id="an open transaction holds back what comes after",
        ),
        pytest.param(
            [
                batch(0, PAIRS[:1], producer=1) + marker(1, 1, commit=False),
                batch(2, PAIRS[2:3], producer=1) + marker(3, 1, commit=True),
            ],
            [2],
            {CONTROL: 2, ABORTED: 1},
            id="each of a producer's transactions ends on its own",
        ),
        pytest.param(
            [batch(0, PAIRS[:2]) + batch(2, PAIRS)[:-5]], [0, 1], {CUT_OFF: 1}, id="cut-off records"
        ),
        pytest.param(
            [batch(0, PAIRS[:2]) + batch(2, PAIRS)[:9]], [0, 1], {CUT_OFF: 1}, id="a cut-off head"
        ),
        pytest.param(
            [batch(0, PAIRS) + bytes(4096), b""], range(40), {}, id="preallocated, and empty"
        ),
    ],
)
def test_records_count_where_their_batch_is_whole_and_committed(
    tmp_path: Path, segments: list[bytes], offsets: Sequence[int], wrong: dict[str, int]
) -> None:
    found = rows(tmp_path, *segments)
    assert records(found) == {offset: PAIRS[offset] for offset in offsets}
    assert problems(found) == wrong
    assert {row["offset"] for row in found if row["problem"] == OPEN} <= {None}


def test_a_batch_that_fails_its_crc_and_what_comes_after(tmp_path: Path) -> None:
    bad = bytearray(batch(2, PAIRS[:2]))
    bad[-3] ^= 1
    found = rows(tmp_path, batch(0, PAIRS[:2]) + bytes(bad) + batch(4, PAIRS[:1]))
    assert set(records(found)) == {0, 1, 4}
    (row,) = [row for row in found if row["problem"] is not None]
    assert row["problem"] == "the record batch fails its CRC"
    assert (row["offset"], row["value"]) == (2, bytes(bad))


def test_compressed_bytes_that_do_not_unpack(tmp_path: Path) -> None:
    raw = bytearray(batch(0, PAIRS, codec=1))
    raw[HEAD.size :] = bytes(len(raw) - HEAD.size)
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
    found = rows(tmp_path, bytes(raw) + batch(50, PAIRS[:1]))
    assert set(records(found)) == {50}
    (problem,) = problems(found)
    assert "cannot be unpacked" in str(problem)


def test_something_else_than_a_segment(tmp_path: Path) -> None:
    found = rows(tmp_path, b"not a segment at all, but long enough for a head" * 3)
    (problem,) = problems(found)
    assert "not a record batch at byte 0" in str(problem)


def test_what_is_a_segment_is_told_by_its_name(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-3", "__consumer_offsets-12", "orders-0"):
        (tmp_path / name).mkdir()
        for file in (f"{0:020}.log", f"{0:020}.index", f"{0:020}.log.deleted", "leader-epoch"):
            (tmp_path / name / file).touch()
    found = find_segments([str(tmp_path)])
    assert [(number, len(files)) for number, files in found] == [(3, 1), (12, 1)]
    one = tmp_path / "__consumer_offsets-3" / f"{0:020}.log"
    assert find_segments([str(one), str(tmp_path)]) == found


def test_the_cluster_is_the_one_of_the_brokers_own_file(tmp_path: Path) -> None:
    folders = []
    for name in ("one", "two", "bare"):
        folder = tmp_path / name / "logs" / "__consumer_offsets-7"
        folder.mkdir(parents=True)
        (folder / SEGMENT).touch()
        folders.append(str(folder))
        if name != "bare":
            properties = f"version=1\ncluster.id={name}\nnode.id=1\n"
            (folder.parent / "meta.properties").write_text(properties)
    one, two, bare = folders
    for path in (one, str(Path(one).parent), str(Path(one) / SEGMENT)):
        assert find_cluster_id_of(find_segments([path])) == "one"
    assert find_cluster_id_of(find_segments([bare])) is None
    with pytest.raises(DocumentError, match=r"segments are of 2 clusters: .*scan one at a time"):
        find_cluster_id_of(find_segments([one, two]))
