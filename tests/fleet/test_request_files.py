"""Request logs in parts: every line once, in whatever parts, and never a line lost in silence."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.sources import files as request_files
from rebal.inspectors.fleet.sources.files import Block, Part, blocks, share_out

TEXT = b"first\n\nthird, which is longer\r\n" + b"x" * 50 + b"\nno end of line"
WHOLE = TEXT + b"\n"


def lines_of(found: list[Block]) -> list[tuple[int, bytes]]:
    """Each line with where it begins."""
    lines = []
    for position, text, problem in found:
        assert problem is None
        begin = position
        for line in text.splitlines(keepends=True):
            lines.append((begin, line))
            begin += len(line)
    return lines


def read_all(*paths: Path) -> list[Block]:
    shares, _ = share_out([str(path) for path in paths], 1)
    return [block for share in shares for part in share for block in blocks(part)]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_each_line_belongs_to_the_part_in_which_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    log = tmp_path / "log"
    log.write_bytes(TEXT)
    monkeypatch.setattr(request_files, "_BLOCK", block)
    monkeypatch.setattr(request_files, "_LEAST", 1)
    for size in range(1, len(TEXT) + 2):
        monkeypatch.setattr(request_files, "_MOST", size)
        assert len(share_out([str(log)], 1)[0]) == -(-len(TEXT) // size)
        assert lines_of(read_all(log)) == lines_of([Block(0, TEXT)]), size


def test_packed_files_are_told_by_their_first_bytes_and_may_have_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_files, "_PACKED_BLOCK", 11)
    log = tmp_path / "log.1"
    log.write_bytes(gzip.compress(TEXT[:20]) + gzip.compress(TEXT[20:]) + b"\0" * 30)
    assert lines_of(read_all(log)) == lines_of([Block(0, TEXT)])


@pytest.mark.parametrize("damage", ["cut off", "damaged"])
def test_a_packed_file_gives_what_can_be_read_of_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(request_files, "_PACKED_BLOCK", 11)
    log = tmp_path / "log"
    second = gzip.compress(TEXT)
    log.write_bytes(
        gzip.compress(TEXT + b"\n")
        + (second[: len(second) // 2] if damage == "cut off" else b"XX" * 9)
    )
    *whole, last = read_all(log)
    assert b"".join(block.text for block in whole).startswith(TEXT + b"\n")
    assert last.problem == "the packed file is cut off or damaged from here on; fetch it again"
    assert last.position == sum(len(block.text) for block in whole)


def test_a_file_that_becomes_shorter_is_not_taken_for_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(TEXT)
    parts = [Part(str(log), 0, 40), Part(str(log), 40, len(TEXT))]
    log.write_bytes(TEXT[:6])
    first, *rest = [block for part in parts for block in blocks(part)]
    assert first == Block(0, TEXT[:6])
    assert [block.problem for block in rest] == [
        "the file became shorter while it was read, from here on; scan it again"
    ] * 2


def test_small_files_share_a_task_and_packed_ones_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_files, "_LEAST", 100)
    for name, size in (("a", 40), ("b", 50), ("c", 150), (".hidden", 10), ("empty", 0)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "packed").write_bytes(gzip.compress(TEXT))
    shares, _ = share_out([str(tmp_path), str(tmp_path / "a")], 1000)
    said = [[(Path(one.path).name, one.begin, one.end) for one in share] for share in shares]
    assert said[0][0][0] == "packed"
    assert said[1:] == [
        [("a", 0, 40), ("b", 0, 50)],
        [("c", 0, 100)],
        [("c", 100, 150)],
    ]
    (whole,), _ = share_out([str(tmp_path / "c")], 1)
    assert whole == [Part(str(tmp_path / "c"), 0, 150)]


def test_a_longest_line_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_files, "LONGEST_LINE", 30)
    monkeypatch.setattr(request_files, "_BLOCK", 10)
    monkeypatch.setattr(request_files, "_PACKED_BLOCK", 10)
    for name, data in (("plain", TEXT), ("packed", gzip.compress(TEXT))):
        (tmp_path / name).write_bytes(data)
        found = read_all(tmp_path / name)
        assert b"".join(block.text for block in found) == TEXT
        assert max(len(block.text) for block in found) <= len(TEXT)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        share_out([str(tmp_path / "none")], 1)
    with pytest.raises(DocumentError, match="holds no file"):
        share_out([str(tmp_path)], 1)
    with pytest.raises(DocumentError, match="no such file"):
        list(blocks(Part(str(tmp_path / "gone"), 0, 10)))


def begins(
    *paths: Path, known: Sequence[ReadLog]
) -> tuple[dict[str, tuple[int, int]], list[ReadLog]]:
    shares, logs = share_out([str(path) for path in paths], 1, known)
    parts = [part for share in shares for part in share]
    return {Path(part.path).name: (part.begin, part.end) for part in parts}, logs


def test_only_what_a_log_has_grown_by_is_read_whatever_its_name_is_now(tmp_path: Path) -> None:
    log, rotated = tmp_path / "kafka-request.log", tmp_path / "kafka-request.log.1"
    log.write_bytes(WHOLE + b"a line that is being writ")
    parts, logs = begins(log, known=())
    assert parts == {log.name: (0, len(WHOLE) + 25)}
    assert [one.until for one in logs] == [len(WHOLE)]
    with log.open("ab") as out:
        out.write(b"ten\nanother\n")
    log.rename(rotated)
    log.write_bytes(b"of the new file\n")
    parts, logs = begins(log, rotated, known=logs)
    assert parts == {rotated.name: (len(WHOLE), len(WHOLE) + 37), log.name: (0, 16)}
    parts, again = begins(log, rotated, known=logs)
    assert (parts, again) == ({}, logs)


def test_a_log_that_begins_anew_under_its_name_is_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(WHOLE)
    _, logs = begins(log, known=())
    log.write_bytes(b"!" + WHOLE + WHOLE)
    assert begins(log, known=logs)[0] == {log.name: (0, 2 * len(WHOLE) + 1)}
    log.write_bytes(WHOLE[: len(WHOLE) // 2])
    assert begins(log, known=logs)[0] == {log.name: (0, len(WHOLE) // 2)}


def test_a_packed_log_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log.gz"
    log.write_bytes(gzip.compress(WHOLE))
    parts, logs = begins(log, known=())
    assert list(parts) == [log.name]
    log = log.rename(tmp_path / "moved.gz")
    assert begins(log, known=logs)[0] == {}
    log.write_bytes(gzip.compress(WHOLE) + gzip.compress(WHOLE))
    assert list(begins(log, known=logs)[0]) == [log.name]


def test_files_at_a_url_are_read_as_those_of_a_path_are(tmp_path: Path) -> None:
    folder = tmp_path / "broker 1"
    folder.mkdir()
    (folder / "kafka-request.log.gz").write_bytes(gzip.compress(WHOLE))
    (folder / "kafka-request.log").write_bytes(TEXT)
    (folder / ".hidden").write_bytes(TEXT)
    url = f"file://{folder}"
    for name in ("", "/kafka-request.log"):
        shares, logs = share_out([f"{url}{name}"], 1)
        assert logs == share_out([f"{folder}{name}"], 1)[1]
        parts = [part for share in shares for part in share]
        assert all(part.path.startswith(f"{url}/") for part in parts)
        found = [block for part in parts for block in blocks(part)]
        assert found == read_all(Path(f"{folder}{name}"))
    with pytest.raises(DocumentError, match=r"^file:.*: the store says: .*No such file"):
        share_out([f"{url}/none"], 1)
    with pytest.raises(DocumentError, match=r"^dbfs:/logs: .* begins with s3://"):
        share_out(["dbfs:/logs/a"], 1)
