"""Lazy loading: a command's module is imported when the command is typed, and not before."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from itertools import zip_longest
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rebal.cli.errors import did_you_mean

_OPTIONAL: Final = re.compile(r"\[\w+\]")


class CommandEntry(NamedTuple):
    """A command's name, its module in `rebal.cli.commands`, and one line of help.

    An entry with subcommands (`under`) has no module.
    """

    name: str
    module: str
    summary: str
    under: tuple["CommandEntry", ...] = ()


def lazy_group(
    root: Callable[..., None], about: str, commands: tuple[CommandEntry, ...]
) -> TyperGroup:
    """Return the typer group of `commands`; their modules are not imported yet.

    `root` declares the group's own options, `about` is its help text.
    """
    app = typer.Typer(
        cls=LazyGroup,
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(help=about)(root)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for entry in commands:
        made = lazy_group(lambda: None, entry.summary, entry.under) if entry.under else None
        group.add_command(made or LazyCommand(entry), entry.name)
    return group


class LazyGroup(TyperGroup):
    """A command group that suggests the nearest names for an unknown command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name and the command that the first of `args` names, and the other `args`.

        A name that is not known ends the command line with an error that names the nearest ones.
        """
        name = args[0]
        if name not in self.commands and not ctx.resilient_parsing and not name.startswith("-"):
            ctx.fail(f"there is no command {name}.{did_you_mean(name, self.commands)}")
        return super().resolve_command(ctx, args)


class LazyCommand(TyperCommand):
    """A placeholder for a command, which imports the command's module when it is typed."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(
            entry.name, help=entry.summary, short_help=entry.summary, rich_markup_mode=None
        )
        self._module = f"rebal.cli.commands.{entry.module}"

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of the real command, which parses and runs from here on."""
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> Any:
        """Import the command's module and return the real command."""
        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        single.command(self.name, cls=GreedyCommand)(expanded(import_module(self._module).command))
        return get_command(single)


def expanded(command: Callable[..., int]) -> Callable[..., int]:
    """Return `command` with each parameter that is a record of options replaced by its options.

    typer needs each option as a parameter of its own. A record of options is a dataclass. If a
    parameter is annotated with `Annotated[Record, "name"]`, its option `name` is left out and keeps
    its default.
    """
    own = signature(command, eval_str=True).parameters
    records = {name: _record_of(one.annotation) for name, one in own.items()}

    @wraps(command)
    def typed(**values: Any) -> int:
        for name, (record, options) in records.items():
            if options:
                values[name] = record(**{one.name: values.pop(one.name) for one in options})
        return command(**values)

    vars(typed)["__signature__"] = Signature(
        [one for name, (_, options) in records.items() for one in options or [own[name]]]
    )
    return typed


def _record_of(annotation: Any) -> tuple[Any, list[Parameter]]:
    """Return the class in a parameter's annotation, and its options as parameters.

    The options are the fields of the class if it is a dataclass (a record of options); the list is
    empty otherwise.
    """
    record, *left_out = get_args(annotation) or [annotation]
    if not is_dataclass(record):
        return record, []
    hints = get_type_hints(record, include_extras=True)
    return record, [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(record)
        if get_origin(hints[one.name]) is Annotated and one.name not in left_out
    ]


class GreedyCommand(TyperCommand):
    """A command whose options `FILE...` and `PATH...` take several values, as a shell expands them.

    A shell turns `--client-log pods/*.log` into one option and many words, and each word after the
    first would be read as a group's name. Here `FILE...` takes all following words that are
    existing files. `PATH...`, in commands without a group argument, takes all following words.

    An option with a metavar in brackets, such as `[SECONDS]`, may be typed without a value; its
    value is then empty.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`; before, repeat options with several values and fill in empty values."""
        bare = {
            name
            for param in self.params
            if _OPTIONAL.fullmatch(getattr(param, "metavar", None) or "")
            for name in param.opts
            if name.startswith("-")
        }
        several = {
            name: param.metavar == "PATH..."
            for param in self.params
            if getattr(param, "multiple", False)
            and getattr(param, "metavar", "") in ("FILE...", "PATH...")
            for name in param.opts
        }
        return super().parse_args(ctx, list(_repeat(_filled(args, bare), several)))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help: arguments, the command's own options, then the options of each panel."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            name = getattr(param, "rich_help_panel", None) or (
                "Options" if param.param_type_name == "option" else "Arguments"
            )
            record = param.get_help_record(ctx)
            panels.setdefault(name, []).extend([record] if record else [])
        for name, records in panels.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _filled(args: Sequence[str], bare: Collection[str]) -> Iterator[str]:
    """Yield the words, with an empty word after each option in `bare` that has no value."""
    for arg, following in zip_longest(args, args[1:]):
        yield arg
        if arg in bare and (following is None or following.startswith("-")):
            yield ""


def _repeat(args: Iterable[str], several: Mapping[str, bool]) -> Iterator[str]:
    """Yield the words, with an option of `several` repeated before each of its values.

    `several` is option → True if it takes any word, False if it takes existing files only.
    """
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
