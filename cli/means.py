"""The options that a plan keeps as defaults for later commands, and the options that state facts.

A plan's file keeps the connection without its secrets, the probe, and the paths of evidence. An
option that is typed again replaces the kept one; `-X` adds a setting to the kept ones.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rebal.cli.errors import UsageError, check_family, check_known, is_harmless
from rebal.cli.output import say
from rebal.cli.params import Connection, EvidenceOptions
from rebal.groups.commands import option, options

if TYPE_CHECKING:
    from rebal.planner.plan import Accepted

CONNECTION: Final = ("bootstrap", "command_config", "profile", "overrides")
MEANS: Final = (*CONNECTION, "timeout", *(one.name for one in fields(EvidenceOptions)))
ACCEPTED: Final = ("departed", "assume", "assume_family", "ignore", "reason")
_PANEL: Final = "Assumptions"
_LOGS: Final = ("request_log", "client_log", "broker_log")
_PATHS: Final = (*_LOGS, "command_config", "inventory", "evidence", "snapshot")
_STDIN: Final = "-"


def kept_plan(context: typer.Context, name: str) -> str:
    """Make the options that the plan was made with the defaults of this command; return `name`.

    `name` is the plan's file. typer calls this function for the argument PLAN, before it reads the
    options. The plan becomes `context.obj`.
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


@dataclass(frozen=True)
class Assumptions:
    """The options by which an operator states facts that no evidence shows, as they were typed."""

    expect_members: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="The number of members the service has in all.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    departed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A client that left for good, by client id or instance id; repeatable; recorded.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHO=ID:LIST",
            help="A member's assignor list without evidence, as client-id=app-1:range; recorded.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    assume_family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CLIENT_ID=]FAMILY",
            help="The client library of members without evidence of it; recorded.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="Do not count a rule; needs --reason; recorded.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def accepted(self, reasons: Sequence[str] | None) -> "Accepted":
        """Return what these options state: client families, ignored rules and departed clients.

        `reasons` are the texts of --reason: one for each ignored rule, or one for all.

        Raises:
            UsageError: no such family or rule, or a reason is missing.
        """
        from rebal.groups.clients import families
        from rebal.planner.plan import Accepted

        stated: dict[str, str] = {}
        expected = "--assume-family: expected [CLIENT_ID=]FAMILY, the family one of"
        for text in self.assume_family or ():
            client_id, _, key = text.rpartition("=")
            check_family(key, families(), f"{expected} {', '.join(families())}.")
            stated[client_id or "*"] = key
        return Accepted(
            families=stated,
            ignore=_ignored(self.ignore or (), reasons or ()),
            departed=tuple(self.departed or ()),
        )


def _ignored(ids: Sequence[str], reasons: Sequence[str]) -> dict[str, str]:
    """Return rule id → reason, from the values of --ignore and --reason.

    Raises:
        UsageError: there is no such rule, or a reason is missing.
    """
    if not ids and not reasons:
        return {}
    from rebal.planner.rules import rules

    if not ids or len(reasons) not in (1, len(ids)) or not all(map(str.strip, reasons)):
        raise UsageError('--ignore RULE needs --reason "…": one for each rule, or one for all.')
    wanted = [id_.upper() for id_ in ids]
    for id_ in wanted:
        check_known(
            id_, rules(), f"--ignore {id_}: there is no such rule; rebal explain lists them."
        )
    return dict(zip(wanted, [*reasons] * (len(ids) if len(reasons) == 1 else 1), strict=True))


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
    """Return a path (or list of paths) that a plan keeps, with `folder` in front.

    A URL is returned unchanged. Standard input (`-`) gives None, and is left out of a list.
    """
    if isinstance(value, list):
        return [_from(folder, each) for each in value if each != _STDIN] or None
    return None if value == _STDIN else value if "://" in value else str(folder / value)


def is_typed(context: typer.Context, name: str) -> bool:
    """Return whether the user typed this option on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typed(context: typer.Context, *names: str) -> tuple[str, ...]:
    """Return those of the options `names` that the user typed, as words without secrets."""
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


def stdin_options(context: typer.Context) -> tuple[str, ...]:
    """Return the typed log options that read standard input, as words; no plan keeps them."""
    values = ((name, context.params.get(name) or ()) for name in _LOGS)
    return typed(context, *(name for name, paths in values if _STDIN in map(str, paths)))


def with_missing_variables(context: typer.Context, connection: Connection) -> Connection:
    """Return the connection; its `missing` are the environment variables that it lacks here.

    These are the variables that the kept plan's connection needs and that are not set. If the user
    typed a connection option, none is needed. If typed options other than -b name the brokers, the
    kept `bootstrap` is dropped.
    """
    if context.obj is None or any(is_typed(context, name) for name in CONNECTION):
        return replace(connection, bootstrap=None) if _names_brokers(context) else connection
    given = context.obj.given
    return replace(
        connection,
        missing=[
            name
            for name in dict.fromkeys((*given.variables, *given.environment))
            if name not in os.environ
            and (name.startswith("REBAL_X_") or not connection.names_broker())
        ],
    )


def _names_brokers(context: typer.Context) -> bool:
    """Return whether other options than -b, typed by the user, replace the brokers a plan keeps.

    Such are a profile, and a configuration file or -X setting that names brokers. False if -b is
    typed too, or if no plan is read.
    """
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
    """Return the snapshot file to read the group from (None: read it live), and whether to probe.

    The plan's own file is used if none is typed, no broker is named and `live` is False. A file is
    not probed, unless --probe is typed. Typed options that replace kept ones are named on stderr.
    """
    kept = context.default_map or {}
    again = [
        min(param.opts, key=len)
        for param in context.command.params
        if param.name in MEANS and param.name in kept and is_typed(context, param.name)
    ]
    if again:
        say(f"given again, in place of what the plan keeps: {', '.join(again)}.")
    file = context.params["snapshot"]
    own = file is not None and not is_typed(context, "snapshot")
    if own and (live or connection.names_broker()):
        file = None
    elif own:
        say(f"no broker is named: reading {file}, as the plan was made from it.")
    return Path(file) if file else None, (
        context.params["probe"] and (file is None or is_typed(context, "probe"))
    )
