"""The means of a kept plan: what it was made with is the default of a later command's options.

The connection without its secrets, the probe and the paths of evidence stand in the plan's file.
An option that is given again takes the place of the plan's own; `-X` adds one setting to others.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rebal.cli.harmless import is_harmless
from rebal.cli.output import say
from rebal.cli.params import Connection
from rebal.groups.commands import option, options

CONNECTION: Final = ("bootstrap", "command_config", "profile", "overrides")
EVIDENCE: Final = (
    "probe", "assignors", "request_log", "client_log", "broker_log", "log_timezone", "inventory",
    "evidence", "lake_option",
)  # fmt: skip
MEANS: Final = (*CONNECTION, "timeout", *EVIDENCE)
ACCEPTED: Final = ("departed", "assume", "assume_family", "ignore", "reason")
_LOGS: Final = ("request_log", "client_log", "broker_log")
_PATHS: Final = (*_LOGS, "command_config", "inventory", "evidence", "snapshot")
_STDIN: Final = "-"


def kept_plan(context: typer.Context, name: str) -> str:
    """Make what the plan in the file was made with the defaults of this command's options.

    The plan itself becomes the context's object. It is the callback of the argument PLAN, which is
    read before the options.
    """
    if context.resilient_parsing:
        return name
    from rebal.cli.verifying import read_plan

    file = Path(name)
    context.obj = plan = read_plan(file)
    given = plan.given
    saved = option("--snapshot", given.snapshot) if given.snapshot else ()
    parser = context.command.make_parser(context)
    parser.ignore_unknown_options = True
    kept, _, _ = parser.parse_args([*given.connection, *plan.evidence, *saved])
    # The value of an option that this command lacks is no argument of it.
    own = {one.name for one in context.command.params if one.param_type_name == "option"}
    folder = Path(os.path.relpath(Path(os.path.realpath(file)).parent / given.folder))
    context.default_map = {
        name: _from(folder, value) if name in _PATHS else value
        for name, value in kept.items()
        if value is not None and name in own
    }
    return name


KeptPlan = Annotated[
    Path,
    typer.Argument(
        metavar="PLAN",
        is_eager=True,
        callback=kept_plan,
        help="The plan, as plan-upgrade --out wrote it.",
    ),
]


def _from(folder: Path, value: str | list[str]) -> Any:
    """Return a path, or several, of the folder that the plan was made in; stdin is not kept."""
    if isinstance(value, list):
        return [_from(folder, each) for each in value if each != _STDIN] or None
    return None if value == _STDIN else value if "://" in value else str(folder / value)


def is_typed(context: typer.Context, name: str) -> bool:
    """Return whether the option stands on this command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typed(context: typer.Context, *names: str) -> tuple[str, ...]:
    """Return the options of these parameters as they were typed, without secrets."""
    words: list[str] = []
    for param in context.command.params:
        if param.name not in names or not is_typed(context, param.name):
            continue
        name, value = min(param.opts, key=len), context.params[param.name]
        if value is True:
            words.append(name)
        else:
            values = map(str, value if isinstance(value, list | tuple) else [value])
            setting = "KEY=VALUE" in str(param.metavar)
            words += options(name, [each for each in values if not setting or is_harmless(each)])
    return tuple(words)


def piped(context: typer.Context) -> tuple[str, ...]:
    """Return the options that read stdin, as they were typed: no file keeps what a pipe sent."""
    values = ((name, context.params.get(name) or ()) for name in _LOGS)
    return typed(context, *(name for name, paths in values if _STDIN in map(str, paths)))


def reaching(context: typer.Context, connection: Connection) -> Connection:
    """Return the connection, with the variables that the plan needs for it and that are not set."""
    again = any(is_typed(context, name) for name in CONNECTION)
    if context.obj is None or again:
        return replace(connection, bootstrap=None) if _names_brokers(context) else connection
    given = context.obj.given
    missing = [
        name
        for name in dict.fromkeys((*given.variables, *given.environment))
        if name not in os.environ and (name.startswith("REBAL_X_") or not connection.names_broker())
    ]
    return replace(connection, missing=missing)


def _names_brokers(context: typer.Context) -> bool:
    """Return whether typed settings, and not -b, name the brokers: they replace the plan's own."""
    if context.obj is None or is_typed(context, "bootstrap"):
        return False
    from rebal.inspectors.connection.config import names_brokers

    given = {name: context.params[name] for name in CONNECTION if is_typed(context, name)}
    # The parser's own value is a text.
    file = Path(given["command_config"]) if "command_config" in given else None
    return "profile" in given or names_brokers(file, given.get("overrides") or ())


def source_of(
    context: typer.Context, connection: Connection, *, live: bool
) -> tuple[Path | None, bool]:
    """Return the file to read the group from, and whether to probe.

    Without a typed file it is the plan's own where no broker is named; a file is not probed. Say
    which options stand in place of those that the plan keeps.
    """
    _note_again(context)
    file = context.params["snapshot"]
    own = file is not None and not is_typed(context, "snapshot")
    if own and (live or connection.names_broker()):
        file = None
    elif own:
        say(f"no broker is named: reading {file}, as the plan was made from it.")
    probe = context.params["probe"] and (file is None or is_typed(context, "probe"))
    return Path(file) if file else None, probe


def _note_again(context: typer.Context) -> None:
    """Say which options stand here instead of those that the plan keeps."""
    kept = context.default_map or {}
    again = [
        min(param.opts, key=len)
        for param in context.command.params
        if param.name in MEANS and param.name in kept and is_typed(context, param.name)
    ]
    if again:
        say(f"given again, in place of what the plan keeps: {', '.join(again)}.")
