"""`rebal fleet pack`, and the command lines of docs/fleet-on-spark.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from rebal.cli import app
from rebal.inspectors.fleet import packing
from rebal.inspectors.fleet.shipping import build_zip

DOC: Final = (Path(__file__).parents[2] / "docs" / "fleet-on-spark.md").read_text()
LINES: Final = re.findall(r"^ {4,}((?:rebal|spark-submit) .*)$", DOC, re.MULTILINE)
Said = pytest.CaptureFixture[str]

PROGRAM: Final = """
import pandas, pyarrow.parquet, pyarrow.fs
from rebal.inspectors.fleet import schemas
from rebal.groups.clients import family_of
from rebal.groups.wire import offsets_topic
assert family_of("apache-kafka-java", "3.9.1")
assert "site-packages" not in pyarrow.__file__
"""


def test_a_python_without_packages_runs_rebal_with_the_archive(
    tmp_path: Path, capsys: Said
) -> None:
    out = tmp_path / "packages.tar.gz"
    out.write_text("old")
    assert app.run(["fleet", "pack", str(out)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    said, options = told.err.splitlines()
    assert said.startswith(f"rebal: wrote {out}: ")
    assert f"for Python {sys.version_info[0]}.{sys.version_info[1]} on linux" in said
    assert shlex.split(options) == [
        "--spark-conf",
        f"spark.archives={out}#rebal_packages",
        "--spark-conf",
        "spark.executorEnv.PYTHONPATH=rebal_packages",
    ]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    with tarfile.open(out) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "rebal_packages", filter="data")
    assert not [name for name in names if name.startswith(("/", "..")) or "/tests/" in name]
    code = build_zip(tmp_path)
    for path, runs in ((f"rebal_packages:{code}", True), (str(code), False)):
        done = subprocess.run(
            [sys.executable, "-S", "-c", PROGRAM],
            env={"PYTHONPATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is runs, done.stderr


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("packages.zip", 2, "name a file that ends in .tar.gz"),
        ("no/packages.tgz", 1, "no/packages.tgz: no such file or directory."),
    ],
)
def test_a_file_that_cannot_be_the_archive_is_one_sentence(
    name: str, code: int, said: str, tmp_path: Path, capsys: Said
) -> None:
    assert app.run(["fleet", "pack", str(tmp_path / name)]) == code
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribution(name: str) -> Any:
        raise packing.PackageNotFoundError(name)

    monkeypatch.setattr(packing, "distribution", distribution)
    assert app.run(["fleet", "pack", str(tmp_path / "a.tgz")]) == 1
    assert "is not installed: pip install 'rebal[fleet]' first." in capsys.readouterr().err


@pytest.mark.parametrize("line", LINES)
def test_each_command_line_of_the_document_is_parsed_by_the_real_command(line: str) -> None:
    words = shlex.split(line)
    words = words[words.index("fleet") :]
    command: Any = app.build()
    for word in words[:2]:
        command = command.commands[word]
    command.load().make_context(words[1], words[2:])


def test_the_document_gives_the_settings_that_pack_prints() -> None:
    assert len(LINES) == 11
    for key, value in packing.spark_settings("packages.tar.gz").items():
        assert f"--spark-conf {key}={value}" in DOC
