"""Pictures of screens for README.md and docs: `make pictures` writes docs/*.svg from real output.

Each command runs in a copy of the folder of `rebal demo`, on a terminal of 100 columns, some days
after its groups were captured. Each picture is made for a light and for a dark page.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI
from rich.text import Text

from rebal.cli import app
from rebal.cli.params import NAMING

ROOT: Final = Path(__file__).parents[1]
THEMES: Final = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}
WIDTH: Final = 100
"""Columns of the terminal."""
_GROUPS: Final = ROOT / "cli" / "data" / "demo"
COMMANDS: Final = {
    "inspect": ["inspect", "--snapshot", "checkout.rebal.yaml"],
    "plan-upgrade": [
        "plan-upgrade", "--snapshot", "checkout.rebal.yaml", "--out", "checkout.plan.yaml",
    ],
    "verify": ["verify", "checkout.plan.yaml"],
}  # fmt: skip
"""The command of each picture, in the order in which they run."""


class _Terminal(StringIO):
    """A stream that colours are written to."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True


class _Then(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = UTC) -> datetime:  # type: ignore[override]
        """Return the hour at which the commands run."""
        return datetime(2026, 11, 24, 3, 0, tzinfo=tz)


@contextlib.contextmanager
def _demo_folder() -> Iterator[None]:
    """Stand in a copy of the demo's folder, with a colour terminal and no broker's address."""
    kept = {name: value for name, value in os.environ.items() if not NAMING.match(name)}
    seen = {"COLUMNS": str(WIDTH), "TERM": "xterm", "NO_COLOR": ""}
    with TemporaryDirectory() as copied, patch.dict(os.environ, kept | seen, clear=True):
        shutil.copytree(_GROUPS, copied, dirs_exist_ok=True)
        with (
            contextlib.chdir(copied),
            patch("rebal.cli.commands.inspect_cmd.datetime", _Then),
            patch("rebal.cli.commands.plan_cmd.datetime", _Then),
        ):
            yield


def printed() -> dict[str, str]:
    """Return the name of each picture → what its command prints, with colours."""
    made = {}
    with _demo_folder():
        for name, words in COMMANDS.items():
            terminal = _Terminal()
            with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
                app.run(words)
            made[name] = terminal.getvalue()
    return made


def pictures() -> dict[str, str]:
    """Return file name → SVG, equal at each run."""
    return {
        f"{name}-{theme}.svg": _svg(f"{name}-{theme}", text, theme)
        for name, text in printed().items()
        for theme in THEMES
    }


def _svg(name: str, text: str, theme: str) -> str:
    console = Console(
        record=True,
        file=StringIO(),
        width=WIDTH,
        color_system="standard",
        force_terminal=True,
        legacy_windows=False,
    )
    typed = " ".join(COMMANDS[name.rpartition("-")[0]])
    for line in (Text(f"$ rebal {typed}"), Text(), *Text.from_ansi(text).split("\n")):
        # A terminal breaks a line where its edge is.
        for part in line.divide(range(WIDTH, len(line), WIDTH)):
            console.print(part, soft_wrap=True)
    made = console.export_svg(title="rebal", theme=THEMES[theme], unique_id=f"rebal-{name}")
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def main(folder: Path) -> None:
    """Write each picture into `folder`."""
    folder.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (folder / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
