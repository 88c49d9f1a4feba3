"""The command line: `rebal COMMAND …`. Each command is the function `command` of its own module.

    groups        commands/groups_cmd.py        a cluster's groups, one line each
    inspect       commands/inspect_cmd.py       a group's members, protocol and findings
    doctor        commands/doctor_cmd.py        the evidence that this user and cluster can give
    plan-upgrade  commands/plan_cmd.py          the steps to another rebalance protocol
    verify        commands/verify_cmd.py        the state of a roll-out, and the gate of its step
    show          commands/show_cmd.py          a kept plan, or the configuration of a step
    check         commands/check_cmd.py         the next starts that a change of files alters
    diff          commands/diff_cmd.py          two snapshots, or a plan and the live group
    simulate      commands/simulate_cmd.py      the result of an assignor, offline
    rehearse      commands/rehearse_cmd.py      a plan or a script, second by second, offline
    explain       commands/explain_cmd.py       the documentation of a rule
    fleet scan    commands/fleet_scan_cmd.py    a cluster's history, into tables
    fleet report  commands/fleet_report_cmd.py  its groups, in the order to upgrade them
    fleet metrics commands/fleet_metrics_cmd.py its groups as metrics for Prometheus
    fleet compact commands/fleet_compact_cmd.py removal of files that no kept scan needs
    schema        commands/schema_cmd.py        the JSON Schema of a document
    completion    commands/completion_cmd.py    the script that completes command lines
    demo          commands/demo_cmd.py          the main commands on bundled groups

A command's module is imported when the command is typed, and not before: `rebal --help` loads
neither a Kafka client nor a renderer.
"""

import gc
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import typer

from rebal.cli.errors import (
    DONE,
    FAILED,
    STOPPED,
    USAGE,
    UsageError,
    check_text,
    without_typed,
    without_values,
)
from rebal.cli.lazy import CommandEntry, lazy_group
from rebal.cli.output import handle_write_error, say
from rebal.groups import VERSION
from rebal.groups.errors import RebalError

if TYPE_CHECKING:
    from typer.core import TyperGroup

COMMANDS: Final = (
    CommandEntry(
        "groups", "groups_cmd", "List the groups of a cluster, what needs attention first."
    ),
    CommandEntry(
        "inspect", "inspect_cmd", "Show what a group really runs, with evidence for each fact."
    ),
    CommandEntry(
        "doctor", "doctor_cmd", "Show which evidence you can get, and what grants the rest."
    ),
    CommandEntry(
        "plan-upgrade",
        "plan_cmd",
        "Plan the path to COOPERATIVE: each step with its gate.",
    ),
    CommandEntry("verify", "verify_cmd", "Check a plan's current step on the live group."),
    CommandEntry(
        "show", "show_cmd", "Show a kept plan, one of its steps, or a step's configuration."
    ),
    CommandEntry("check", "check_cmd", "Name the groups that a change makes start differently."),
    CommandEntry("diff", "diff_cmd", "Compare two snapshots, or a plan with the live group."),
    CommandEntry(
        "simulate", "simulate_cmd", "Simulate another assignor on a group; nothing moves."
    ),
    CommandEntry(
        "rehearse", "rehearse_cmd", "Rehearse a plan or a script, second by second, offline."
    ),
    CommandEntry(
        "explain", "explain_cmd", "Explain a rule: its finding, why it matters, what to do."
    ),
    CommandEntry(
        "fleet",
        "",
        "Read a whole cluster's history, and plan for all its groups.",
        (
            CommandEntry(
                "scan", "fleet_scan_cmd", "Read the history of all groups into tables, in one pass."
            ),
            CommandEntry(
                "report",
                "fleet_report_cmd",
                "Show which groups are ready, and in which order to take them.",
            ),
            CommandEntry(
                "metrics",
                "fleet_metrics_cmd",
                "Print or serve metrics of all groups for Prometheus.",
            ),
            CommandEntry(
                "compact",
                "fleet_compact_cmd",
                "Remove at once what no kept scan of a lake needs.",
            ),
        ),
    ),
    CommandEntry("schema", "schema_cmd", "Print the JSON Schema of a document that rebal writes."),
    CommandEntry(
        "completion", "completion_cmd", "Print the script that completes commands in a shell."
    ),
    CommandEntry("demo", "demo_cmd", "Walk through all of it on bundled groups; needs no Kafka."),
)
_WIDTH: Final = re.compile("[0-9]{1,5}")
# typer exports only the leaves of its usage errors; every version raises others of this base too.
_TYPED_WRONG: Final[type[Exception]] = next(
    kind
    for kind in typer.BadParameter.__mro__
    if kind.__name__ == "ClickException" and issubclass(kind, Exception)
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rebal {VERSION}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="Show the version."
    ),
) -> None:
    """Change a Kafka consumer group's rebalance protocol without stopping it.

    rebal reads what a group really runs, plans each step and names the check that must pass before
    the next one. It only reads: it never changes a group, a topic or a setting.
    """


def build() -> "TyperGroup":
    """Return the root group of all commands; no command's module is imported yet."""
    return lazy_group(_root, _root.__doc__ or "", COMMANDS)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    code = run(args)
    if code == STOPPED:
        # Threads that still wait for a broker must not hold back somebody who pressed Ctrl-C.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(STOPPED)
    # The interpreter's last collection frees memory that the system takes back anyway. It would
    # visit every object, which costs a sixth of a short command's time.
    gc.freeze()
    sys.exit(code)


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. An error is one line on stderr."""
    words = sys.argv[1:] if args is None else args
    try:
        check_text(words, os.environ)
        if not _WIDTH.fullmatch(os.environ.get("COLUMNS", "0")):
            # rich takes "²" for a number.
            del os.environ["COLUMNS"]
        result = build().main(args=args, prog_name="rebal", standalone_mode=False)
        code = result if isinstance(result, int) else DONE
    except RebalError as error:
        say(without_values(str(error), words, os.environ), *error.commands)
        return USAGE if isinstance(error, UsageError) else FAILED
    except _TYPED_WRONG as error:
        return _usage(error, words)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except SystemExit as error:
        # typer ends the process on any broken pipe, also on one that is not stdout.
        return _fault(error.__context__ or error)
    except Exception as error:
        return _fault(error)
    if code == STOPPED:
        say("stopped.")
    return code


def _fault(error: BaseException) -> int:
    """Report an unexpected error, and return the exit code.

    An OSError may also mean that typer's own output (help, version) could not be written, such as
    to a closed pipe. With REBAL_DEBUG set, an unexpected error is raised again.
    """
    if isinstance(error, OSError) and _is_of_echo(error):
        try:
            handle_write_error(error)
        except RebalError as problem:
            say(str(problem), *problem.commands)
            return FAILED
        return DONE
    if isinstance(error, OSError) and error.filename is not None:
        say(f"{error.filename}: {(error.strerror or 'it cannot be used').lower()}.")
        return FAILED
    if os.environ.get("REBAL_DEBUG"):
        raise error
    say(
        f"this is a fault of rebal, not yours ({type(error).__name__}: {error}). "
        "Please report it, with what REBAL_DEBUG=1 prints when you run the command again."
    )
    return FAILED


def _is_of_echo(error: OSError) -> bool:
    """Return whether `typer.echo`, which prints help and version texts, raised `error`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is typer.echo.__code__


def _usage(error: Any, args: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    message = without_typed(error.format_message(), args, os.environ)
    if type(error).__name__ == "NoArgsIsHelpError":
        with suppress(OSError):
            typer.echo(message, err=True)
        return USAGE
    command = context.command_path if context else "rebal"
    say(f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} See {command} --help.")
    return USAGE
