"""Options that take several files, as shells write them: `--client-log pods/*.log`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from typer.core import TyperCommand


class GreedyCommand(TyperCommand):
    """A command whose options that take `FILE…` or `PATH…` also take what follows their value.

    A shell turns `--client-log pods/*.log` into one option and many words. Without this, each
    word after the first would be taken for a group's name: so `FILE…` takes only files that exist.
    `PATH…` is for commands that take no name: it takes folders, and what is not there, too.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before everything that it takes, then parse."""
        several = {
            name: param.metavar == "PATH…"
            for param in self.params
            if getattr(param, "multiple", False)
            and getattr(param, "metavar", "") in ("FILE…", "PATH…")
            for name in param.opts
        }
        return super().parse_args(ctx, list(_repeat(args, several)))


def _repeat(args: list[str], several: Mapping[str, bool]) -> Iterator[str]:
    """`several` says of each option whether it takes any path, or existing files only."""
    option = None
    valued = False
    for arg in args:
        if arg in several:
            option, valued = arg, False
        elif (
            option
            and valued
            and not arg.startswith("-")
            and (several[option] or os.path.isfile(arg))
        ):
            yield option
        elif option and valued:
            option = None
        else:
            valued = True
        yield arg
