"""The demo runs its chapters, and the bundled folder is whole."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.cli.commands import demo_cmd
from rebal.cli.commands.demo_cmd import CHAPTERS, MORE, Chapter, walk
from rebal.cli.files import save_snapshot
from rebal.groups.model import GroupSnapshot

Said = pytest.CaptureFixture[str]


FIRST, SECOND = (
    Chapter("a.yaml", "First", "inspect"),
    Chapter("a.yaml", "Second", "inspect -o json", before="inspect --wide"),
)


@pytest.fixture
def folder(
    tmp_path: Path, group: Callable[..., GroupSnapshot], monkeypatch: pytest.MonkeyPatch
) -> Path:
    save_snapshot(group(), tmp_path / "a.yaml")
    monkeypatch.setattr(demo_cmd, "CHAPTERS", (FIRST, SECOND))
    return tmp_path


def test_the_demo_prints_each_command_before_its_output_and_pauses_between_chapters(
    folder: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "")
    before, here = {path.name for path in folder.iterdir()}, Path.cwd()
    assert walk(folder, pause=True) == 0
    assert Path.cwd() == here
    assert {path.name for path in folder.iterdir()} == before
    assert len(asked) == 1, "it waits between the two chapters"
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == demo_cmd.ABOUT
    assert str(folder) in lines[1]
    shown = [line for line in lines if line.startswith(("$", "1/2", "2/2"))]
    assert shown == [
        "1/2  First",
        "$ rebal inspect --snapshot a.yaml",
        "2/2  Second",
        "$ rebal inspect --wide --snapshot a.yaml",
        "$ rebal inspect -o json --snapshot a.yaml",
    ]
    assert out.count("checkout    Stable") == 1
    assert out.count('"schema": "rebal.inspect/1"') == 1


def test_the_demo_goes_on_after_a_failed_command_and_exits_1(
    folder: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_cmd, "CHAPTERS", (FIRST._replace(file="b.yaml"), FIRST))
    assert walk(folder) == 1
    out, err = capsys.readouterr()
    assert err == "rebal: b.yaml: there is no such file.\n"
    assert "(exit code 1: failed)" in out
    assert out.count("checkout    Stable") == 1


def test_the_demo_names_every_bundled_group() -> None:
    with as_file(files("rebal.cli") / "data" / "demo") as bundled:
        named = {*(chapter.file for chapter in CHAPTERS), *MORE}
        assert named == {path.name for path in bundled.iterdir()}


def test_the_demo_runs_every_command_of_its_chapters_without_a_broker(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the demo asked a broker")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setenv("REBAL_BOOTSTRAP", "kafka-1:9092")
    monkeypatch.setenv("COLUMNS", "80")
    assert app.run(["demo"]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "rebal: no broker is named: reading checkout.rebal.yaml, as the plan was made from it.\n"
        "rebal: checkout.rebal.yaml shows the group as of 2026-11-21 04:27Z.\n"
    )
    assert "127.0.0.1:29621 --" not in out, "no command names the broker that is gone"
    for command in ("inspect", "plan-upgrade", "verify"):
        assert f"$ rebal {command}" in out
    assert "bundled" in out
    assert "captured by rebal from real members" in " ".join(out.split())
    chapters = re.split(r"^─+$", out, flags=re.MULTILINE)[1:]
    assert [chapter.split()[0] for chapter in chapters] == ["1/4", "2/4", "3/4", "4/4"]
    assert all(chapter.strip().count("\n") + 1 <= 40 for chapter in chapters)
    assert "$ rebal verify checkout.plan.yaml" in chapters[-1]
    assert re.search(r"next: +restart checkout-3 with \[cooperative-sticky, range\]", chapters[-1])


def test_the_demo_runs_without_the_packages_of_the_fleet_extra() -> None:
    blocked = ("jinja2", "numpy", "pandas", "pyarrow", "pyspark", "deltalake")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from rebal.cli import app; sys.exit(app.run(['demo']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "next:       restart checkout-3" in done.stdout


@pytest.mark.parametrize(
    ("words", "stdin", "stdout", "waits"),
    [
        ([], True, True, True),
        (["--no-pause"], True, True, False),
        ([], False, True, False),
        ([], True, False, False),
    ],
)
def test_the_demo_pauses_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, words: list[str], stdin: bool, stdout: bool, waits: bool
) -> None:
    given: list[bool] = []
    monkeypatch.setattr(demo_cmd, "walk", lambda _folder, *, pause: given.append(pause) or 0)
    monkeypatch.setattr("sys.stdin.isatty", lambda: stdin, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: stdout, raising=False)
    assert app.run(["demo", *words]) == 0
    assert given == [waits]
