"""Files are written whole or not at all, and read with an error that says what to do."""

import gzip
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from rebal.cli import files
from rebal.cli.errors import FileError, UsageError
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.inspectors import files as text_files


def test_a_saved_snapshot_reads_back_and_is_replaced_by_the_next(
    tmp_path: Path, group: Callable[..., GroupSnapshot]
) -> None:
    path = files.save_snapshot(group(), tmp_path)
    assert path.name == "checkout.rebal.yaml"
    assert files.read_snapshot(path) == group()
    path.chmod(0o640)
    files.save_snapshot(group(members=()), path)
    assert files.read_snapshot(path).members == ()
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["checkout.rebal.yaml"]


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rebal.cli.files.os.fsync", full)
    with pytest.raises(FileError, match=r"cannot write .*a\.yaml: no space left on device\."):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.yaml"]
    with pytest.raises(FileError, match=r"cannot write .*: no such file or directory\."):
        files.write_text(tmp_path / "no" / "a.yaml", "x")


def test_a_link_keeps_pointing_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", ".", "", "a/b", "nul\0\n", "ünïcode", "x" * 249, "-o", ".x"]
)
def test_any_group_id_makes_a_file_inside_the_folder(
    name: str, tmp_path: Path, group: Callable[..., GroupSnapshot]
) -> None:
    made = files.save_snapshot(group(group_id=name), tmp_path)
    assert made.parent == tmp_path
    assert os.listdir(tmp_path) == [made.name]
    assert not made.name.startswith(("-", "."))
    assert made.name.isascii()
    assert files.read_snapshot(made).group.group_id == name


# A path that is no snapshot, what stands there (of a good one's text) and what is said of it.
BAD: dict[str, tuple[str, Callable[[str], bytes] | None, str]] = {
    "missing": ("none.yaml", None, "there is no such file"),
    "folder": ("", None, "is a folder"),
    "endless": ("/dev/zero", None, "is no text"),
    "sparse": ("s.json", lambda good: b"", "is no text"),
    "pipe": ("p.yaml", None, "nothing was written to this pipe within 0.05 s"),
    "name": ("\ud800.yaml", None, "no file can have this name"),
    "binary": ("b.yaml", lambda good: b"schema: \xff\xfe", "not UTF-8 text"),
    "gz": ("g.yaml", lambda good: gzip.compress(good.encode()), "is compressed; unpack it first"),
    "UTF-16": ("u.yaml", lambda good: good.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "empty": ("e.yaml", lambda good: b"", "expected a document with `schema: rebal.snapshot/1`"),
    "cut off": ("c.json", lambda good: good.encode()[: len(good) // 2], "not valid JSON"),
    "newer": (
        "n.json", lambda good: good.replace("snapshot/1", "snapshot/2").encode(),
        "use the rebal version that wrote it",
    ),
    "other": ("o.json", lambda good: b'{"schema": "rebal.inspect/1"}', "expected rebal.snapshot/1"),
    "ending": ("x.toml", lambda good: b"", "the ending says the format"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "made", "said"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_snapshot_is_one_sentence(
    name: str,
    made: Callable[[str], bytes] | None,
    said: str,
    *,
    tmp_path: Path,
    group: Callable[..., GroupSnapshot],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rebal.inspectors.files._PATIENCE", 0.05)
    path = tmp_path / name
    if made is not None:
        path.write_bytes(made(dump_snapshot(group(), "json")))
    if name == "p.yaml":
        os.mkfifo(path)
    if name == "s.json":
        os.truncate(path, 1 << 30)
    with pytest.raises(RebalError) as caught:
        files.read_snapshot(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pipe_is_read_and_written_where_the_other_side_is_there(tmp_path: Path) -> None:
    pipe = tmp_path / "p"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match=r"cannot write .*p: no such device or address"):
        files.write_text(pipe, "x")
    with ThreadPoolExecutor(1) as other:
        read = other.submit(text_files.read_text, pipe)
        wrote = False
        while not (wrote or read.done()):
            with suppress(FileError):
                files.write_text(pipe, "written")
                wrote = True
        assert read.result() == "written"
    assert pipe.is_fifo()


def test_a_text_has_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 11)
    assert text_files.read_text(tmp_path / "a", 11) == "x" * 11
    with pytest.raises(OSError, match="is larger than 0 MiB, so it is no document"):
        text_files.read_text(tmp_path / "a", 10)


def test_the_only_snapshot_of_a_folder_is_found_and_none_or_two_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rebal inspect GROUP --save"):
        files.the_one_snapshot(tmp_path)
    (tmp_path / "a.rebal.yaml").write_text("x")
    (tmp_path / "notes.yaml").write_text("x")
    assert files.the_one_snapshot(tmp_path).name == "a.rebal.yaml"
    (tmp_path / "b.rebal.yaml").write_text("x")
    with pytest.raises(UsageError, match=r"has 2 \(a\.rebal\.yaml, b\.rebal\.yaml\)"):
        files.the_one_snapshot(tmp_path)


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "full.yaml").symlink_to("/dev/full")
    with pytest.raises(FileError, match=r"full\.yaml: no space left on device\."):
        files.write_text(tmp_path / "full.yaml", "x")
    assert Path("/dev/full").is_char_device()
    assert os.listdir(tmp_path) == ["full.yaml"]
