"""Options that take several files, as shells write them: `--client-log pods/*.log`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand


class GreedyCommand(TyperCommand):
    """A command whose repeatable FILE options also take the existing files that follow them.

    A shell turns `--client-log pods/*.log` into one option and many words. Without this, each
    word after the first would be taken for a group's name.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before every existing file that follows its value, then parse."""
        several = {
            name
            for param in self.params
            if getattr(param, "multiple", False) and "FILE" in (getattr(param, "metavar", "") or "")
            for name in param.opts
        }
        return super().parse_args(ctx, list(_repeat(args, several)))


def _repeat(args: list[str], several: set[str]) -> Iterator[str]:
    option = None
    valued = False
    for arg in args:
        if arg in several:
            option, valued = arg, False
        elif option and valued and not arg.startswith("-") and os.path.isfile(arg):
            yield option
        elif option and valued:
            option = None
        else:
            valued = True
        yield arg
