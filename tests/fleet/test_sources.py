"""What `fleet scan` is given to read, before Spark starts: one sentence for each wrong thing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rebal.cli.app import run
from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.sources.captured import find_files

LINE = b'{"key":"AAI=","value":null,"partition":0,"offset":1,"timestamp":1}\n'


def test_files_and_folders(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "in" / "b.jsonl.gz"
    packed.parent.mkdir()
    plain.write_bytes(LINE)
    packed.write_bytes(gzip.compress(LINE))
    (tmp_path / "c.parquet").write_bytes(b"PAR1....PAR1")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.jsonl.crc").write_bytes(b"crc")
    assert find_files([str(tmp_path)]) == [
        (str(plain), "text"),
        (str(tmp_path / "c.parquet"), "parquet"),
        (str(packed), "text"),
    ]
    assert find_files(["hdfs://nn/captured.jsonl.gz", "s3a://bucket/captured"]) == [
        ("hdfs://nn/captured.jsonl.gz", "text"),
        ("s3a://bucket/captured", "parquet"),
    ]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("missing.jsonl", None, "no such file"),
        ("empty.jsonl", b"", "is empty"),
        ("plain.jsonl.gz", LINE, "is not gz, whatever its name says"),
        ("packed.jsonl", gzip.compress(LINE), "name it so that it ends in .gz"),
        ("text.parquet", LINE, "is not Parquet"),
    ],
    ids=["missing", "empty", "no gz", "gz by another name", "no Parquet"],
)
def test_files_that_are_not_what_they_seem(
    tmp_path: Path, name: str, data: bytes | None, says: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DocumentError, match=says):
        find_files([str(tmp_path / name)])


def test_a_folder_without_a_captured_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DocumentError, match=r"no \.jsonl, \.jsonl\.gz or \.parquet"):
        find_files([str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--offsets", "a", "--segments", "b"], "a scan reads records from one source"),
        (["--offsets", "a", "-b", "127.0.0.1:1"], "a scan reads records from one source"),
        (["--offsets", "a", "--spark-conf", "x"], "expected key=value"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "scan", *words, "--out", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err


def test_no_source_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "scan", "--out", str(tmp_path)]) == 1
    assert "no bootstrap server" in capsys.readouterr().err
