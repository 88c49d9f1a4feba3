"""`rebal completion`: the script that completes rebal's command lines in a shell."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal

import typer

from rebal.cli import output
from rebal.cli.completion import candidates
from rebal.cli.errors import DONE

Shell = Literal["bash", "zsh", "fish"]
"""Shells that there is a script for."""


def command(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
    line: Annotated[str | None, typer.Option("--complete", metavar="LINE", hidden=True)] = None,
) -> int:
    """Print the script that completes rebal's command lines: commands, options, files, groups.

    Load it from the shell's start-up file: `source <(rebal completion bash)`, the same for zsh
    (after compinit), `rebal completion fish | source`. Names of groups come from the cluster that
    the line, the profile or the environment names; a cluster that does not answer within a second
    gives none.
    """
    output.write(_script(shell) if line is None else _answer(line))
    return DONE


def _script(shell: str) -> str:
    """Return the script for one shell."""
    folder = files("rebal.cli") / "data" / "completion"
    return (folder / f"rebal.{shell}").read_text(encoding="utf-8")


def _answer(line: str) -> str:
    """Return the candidates for the end of `line`, one a line: the word, a tab, its help."""
    found = candidates(line)
    return "".join(f"{one.value}\t{' '.join(one.help.split())}\n" for one in found)
