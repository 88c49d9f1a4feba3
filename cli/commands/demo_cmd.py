"""`rebal demo`: the main commands in four chapters, on groups that come with rebal."""

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
from typing import Annotated, Final, NamedTuple

import typer
from rich.text import Text

from rebal.cli import output
from rebal.cli.app import run
from rebal.cli.errors import DONE, FAILED, STOPPED, USAGE
from rebal.cli.params import NAMING
from rebal.groups.commands import Command

ABOUT: Final = (
    "These groups were captured by rebal from real members on a real Kafka 4.1.1 broker. They are "
    "bundled files: nothing here asks a broker, and nothing is changed."
)
MEANING: Final = {
    0: "safe, or nothing to do",
    3: "something blocks it",
    4: "it cannot be proven yet",
}


class Chapter(NamedTuple):
    """One chapter: a bundled group, what it shows, and the command (after `rebal`) to run on it.

    `before` is a command that is run first; the demo shows it without its output.
    """

    file: str
    caption: str
    command: str
    before: str = ""


CHAPTERS: Final = (
    Chapter("shipping.rebal.yaml", "A healthy group. What does it run?", "inspect"),
    Chapter(
        "shipping.rebal.yaml",
        "The plan. Which steps, at which cost, and is the first one safe?",
        "plan-upgrade",
    ),
    Chapter(
        "checkout.rebal.yaml",
        "Another group, half-way. One member was forgotten: what does that endanger?",
        "inspect",
    ),
    Chapter(
        "checkout.rebal.yaml",
        "The check. Is step 1 done, and what is next?",
        "verify checkout.plan.yaml",
        before="plan-upgrade --out checkout.plan.yaml",
    ),
)
MORE: Final = {
    "billing.rebal.yaml": "a group that is finished",
    "ml-features.rebal.yaml": "librdkafka members, which need another path",
}


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
    """Run the demo's chapters on the snapshots in `folder`, and return the exit code.

    The commands run in a copy of the folder, so that plans and journals stay out of the original.
    `pause` waits for Enter after each chapter but the last.
    """
    _print([ABOUT, f"To repeat any of this: cd {shlex.quote(str(folder))}"])
    codes: list[int] = []
    with TemporaryDirectory() as copied:
        copy = Path(copied) / folder.name
        shutil.copytree(folder, copy)
        # Relative names keep the commands short enough to read, and to type again.
        with contextlib.chdir(copy), _without_brokers():
            for number, chapter in enumerate(CHAPTERS, 1):
                if pause and number > 1:
                    with contextlib.suppress(EOFError):
                        input("\n(Enter goes on, Ctrl-C ends) ")
                _print(["", "─" * 78, f"{number}/{len(CHAPTERS)}  {chapter.caption}"])
                codes.append(_shown(chapter))
                if STOPPED in codes:
                    return STOPPED
    own = Command("rebal", "inspect", "GROUP", "-b", "HOST:PORT", "--probe")
    _print(
        [
            "",
            "More groups are there:",
            *(f"  {file}: {caption}" for file, caption in MORE.items()),
            f"On your own groups: {own}",
        ]
    )
    return FAILED if {FAILED, USAGE}.intersection(codes) else DONE


@contextlib.contextmanager
def _without_brokers() -> Iterator[None]:
    """Unset the variables that name the user's own brokers: the demo must not ask them."""
    named = {name: os.environ.pop(name) for name in filter(NAMING.match, list(os.environ))}
    try:
        yield
    finally:
        os.environ.update(named)


def _shown(chapter: Chapter) -> int:
    file = ("--snapshot", chapter.file)
    if chapter.before:
        words = [*shlex.split(chapter.before), *file]
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            run(words)
        _print(["", f"$ rebal {shlex.join(words)}"])
    words = shlex.split(chapter.command)
    # A plan remembers the file that it was made from.
    words += () if words[0] == "verify" else file
    _print(["", f"$ rebal {shlex.join(words)}", ""])
    code = run(words)
    if code:
        _print([f"(exit code {code}: {MEANING.get(code, 'failed')})"])
    return code


def _print(lines: Sequence[str]) -> None:
    output.page([Text(line) for line in lines])
