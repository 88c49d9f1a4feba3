"""`rebal demo`: the main job in four chapters, on groups that come with rebal."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import msgspec
import typer
from rich.text import Text

from rebal.cli import output
from rebal.cli.app import run
from rebal.cli.errors import DONE, FAILED, STOPPED, USAGE
from rebal.cli.files import read_text
from rebal.cli.params import NAMING
from rebal.groups.commands import Command
from rebal.groups.snapshot.documents import loads

INDEX: Final = "index.yaml"
MEANING: Final = {
    0: "safe, or nothing to do",
    3: "something blocks it",
    4: "it cannot be proven yet",
}


class Bundled(msgspec.Struct, frozen=True, kw_only=True):
    """One bundled group: its file, and what it shows."""

    file: str
    caption: str


class Stop(Bundled, frozen=True, kw_only=True):
    """One chapter: a bundled group, and the commands (after `rebal`) to run on it.

    The commands of `before` are shown, but their answers are not.
    """

    before: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("inspect", "plan-upgrade")


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The index of the demo: where the groups come from, each chapter in order, and more groups."""

    about: str
    stops: tuple[Stop, ...]
    more: tuple[Bundled, ...] = ()


def command(
    *,
    no_pause: Annotated[
        bool, typer.Option("--no-pause", help="Do not wait for Enter between chapters.")
    ] = False,
) -> int:
    """Show the main job in four chapters, on groups captured from real brokers.

    Needs neither Kafka nor Java. On a terminal it waits for Enter after each chapter. Exits with 0
    when every command of the demo ran.
    """
    with as_file(files("rebal.cli") / "data" / "demo") as folder:
        return walk(folder, pause=not no_pause and sys.stdin.isatty() and sys.stdout.isatty())


def walk(folder: Path, *, pause: bool = False) -> int:
    """Run the demo over the snapshots of `folder`, in the order of its index.

    It runs in a copy of the folder, so that plans and journals stay out of the original. `pause`
    waits for Enter after each chapter but the last.
    """
    index = loads(read_text(folder / INDEX), "yaml", INDEX, "rebal.demo/1", Index)
    _print([index.about, f"To repeat any of this: cd {shlex.quote(str(folder))}"])
    codes: list[int] = []
    with TemporaryDirectory() as copied:
        copy = Path(copied) / folder.name
        shutil.copytree(folder, copy)
        # Relative names keep the commands short enough to read, and to type again.
        with contextlib.chdir(copy), _without_brokers():
            for number, stop in enumerate(index.stops, 1):
                if pause and number > 1:
                    _wait()
                _print(["", "─" * 78, f"{number}/{len(index.stops)}  {stop.caption}"])
                codes += _chapter(stop)
                if STOPPED in codes:
                    return STOPPED
    own = Command("rebal", "inspect", "GROUP", "-b", "HOST:PORT", "--probe")
    more = [f"  {group.file}: {group.caption}" for group in index.more]
    _print(["", *(["More groups are there:", *more] if more else []), f"On your own groups: {own}"])
    return FAILED if {FAILED, USAGE}.intersection(codes) else DONE


@contextlib.contextmanager
def _without_brokers() -> Iterator[None]:
    """Leave out the variables that name the user's own brokers: the demo asks none."""
    named = {name: os.environ.pop(name) for name in filter(NAMING.match, list(os.environ))}
    try:
        yield
    finally:
        os.environ.update(named)


def _chapter(stop: Stop) -> list[int]:
    codes = []
    for words in map(shlex.split, stop.before):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            run([*words, "--snapshot", stop.file])
        _print(["", f"$ rebal {shlex.join(words)} --snapshot {shlex.quote(stop.file)}"])
    for words in map(shlex.split, stop.commands):
        # A plan remembers the file that it was made from.
        file = () if words[0] == "verify" else ("--snapshot", stop.file)
        codes.append(_run([*words, *file]))
        if codes[-1] == STOPPED:
            break
    return codes


def _wait() -> None:
    with contextlib.suppress(EOFError):
        input("\n(Enter goes on, Ctrl-C ends) ")


def _run(args: Sequence[str]) -> int:
    _print(["", f"$ rebal {shlex.join(args)}", ""])
    code = run(args)
    if code:
        _print([f"(exit code {code}: {MEANING.get(code, 'failed')})"])
    return code


def _print(lines: Sequence[str]) -> None:
    output.page([Text(line) for line in lines])
