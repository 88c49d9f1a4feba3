"""Commands whose modules are imported when they are typed, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rebal.cli.greedy import GreedyCommand


class LazyCommand(TyperCommand):
    """A name and one line of help that become the real command when it is typed.

    A module with several commands under one name builds their group by its own `build`.
    """

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary, short_help=summary, rich_markup_mode=None)
        self._module = f"rebal.cli.commands.{module}"

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The real command's context: what is parsed and run from here on is the real command."""
        module = import_module(self._module)
        if hasattr(module, "build"):
            return module.build().make_context(info_name, args, parent, **extra)
        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        single.command(self.name, cls=GreedyCommand)(module.command)
        return get_command(single).make_context(info_name, args, parent, **extra)


def lazy_group(root: Callable[..., None], commands: Iterable[tuple[str, str, str]]) -> TyperGroup:
    """A group of commands, each `(name, module, summary)`; `root`'s docstring is its help."""
    app = typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(root)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name, module, summary in commands:
        group.add_command(LazyCommand(name, module, summary))
    return group
