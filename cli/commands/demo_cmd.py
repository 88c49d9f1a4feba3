"""`rebal demo`: inspect → plan-upgrade → simulate on groups that come with rebal."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import msgspec
from rich.text import Text

from rebal.cli import output
from rebal.cli.app import run
from rebal.cli.errors import DONE, FAILED, STOPPED, USAGE
from rebal.cli.files import read_text
from rebal.groups.commands import Command
from rebal.groups.snapshot.documents import loads

INDEX: Final = "index.yaml"
MEANING: Final = {
    0: "safe, or nothing to do",
    3: "something blocks it",
    4: "it cannot be proven safe yet",
}


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """One bundled group: its file, what it shows, and the commands (after `rebal`) to run on it."""

    file: str
    caption: str
    commands: tuple[str, ...] = ("inspect", "plan-upgrade")


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The index of the demo: where the groups come from, and each stop in order."""

    about: str
    stops: tuple[Stop, ...]


def command() -> int:
    """Walk through inspect, plan-upgrade and simulate on groups captured from real brokers.

    Needs neither Kafka nor Java. Exits with 0 when every command of the walk ran.
    """
    with as_file(files("rebal.cli") / "data" / "demo") as folder:
        return walk(folder)


def walk(folder: Path) -> int:
    """Run the demo over the snapshots of `folder`, in the order of its index."""
    index = loads(read_text(folder / INDEX), "yaml", INDEX, "rebal.demo/1", Index)
    _print([index.about, f"They are files in {folder}: go there to repeat any of this."])
    codes = []
    # Relative names keep the commands short enough to read, and to type again.
    with contextlib.chdir(folder):
        for number, stop in enumerate(index.stops, 1):
            _print(["", "═" * 78, f"{number}/{len(index.stops)}  {stop.caption}"])
            for words in map(shlex.split, stop.commands):
                codes.append(_run([*words, "--snapshot", stop.file]))
                if codes[-1] == STOPPED:
                    return STOPPED
    own = Command("rebal", "inspect", "GROUP", "-b", "HOST:PORT", "--probe")
    _print(["", f"On your own groups: {own}"])
    return FAILED if {FAILED, USAGE}.intersection(codes) else DONE


def _run(args: Sequence[str]) -> int:
    _print(["", f"$ rebal {shlex.join(args)}", ""])
    code = run(args)
    if code:
        _print([f"(exit code {code}: {MEANING.get(code, 'failed')})"])
    return code


def _print(lines: Sequence[str]) -> None:
    output.page([Text(line) for line in lines])
