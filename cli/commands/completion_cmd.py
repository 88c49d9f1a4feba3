"""`rebal completion`: the script that completes rebal's command lines in a shell.

typer's own scripts do not complete `host:port`, and its script for zsh evaluates the names that
come from a cluster, which is not safe. The scripts in `data/completion` therefore ask rebal for the
`candidates` of the last word of a line, and the shell quotes what they print. The command's own
parser reads the line and ignores what is missing or wrong in it. Nothing here raises an error:
without candidates the shell offers files.
"""

import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import typer
from typer import Context

from rebal.cli import output
from rebal.cli.app import COMMANDS
from rebal.cli.commands.simulate_cmd import OF_CONSUMERS, OF_WORKERS
from rebal.cli.errors import DONE
from rebal.cli.lazy import CommandEntry, LazyCommand
from rebal.cli.means import CONNECTION, is_typed
from rebal.cli.params import ENDINGS, Connection
from rebal.groups.errors import RebalError

Shell = Literal["bash", "zsh", "fish"]
"""Shells with a completion script."""
LIVE_SECONDS: Final = 0.65
"""Longest wait for a cluster's group names, in seconds, with the import of the Kafka client."""
_HEAD: Final = 200
_RULE: Final = re.compile(r'^(?:@rule\(\s+"| +- id: )(RB\d+)', re.MULTILINE)


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
    if line is None:
        script = files("rebal.cli") / "data" / "completion" / f"rebal.{shell}"
        output.write(script.read_text(encoding="utf-8"))
    else:
        output.write(
            "".join(f"{one.value}\t{' '.join(one.help.split())}\n" for one in candidates(line))
        )
    return DONE


class Candidate(NamedTuple):
    """One possible completion of a word, and a short text about it."""

    value: str
    help: str = ""


_Source: TypeAlias = Callable[[Context, str], Iterator[Candidate]]


def candidates(line: str) -> list[Candidate]:
    """Return the possible completions of the last word of `line`, which ends at the cursor."""
    *before, last = _split(line)
    entry, rest = _entry(before[1:])
    if not isinstance(entry, CommandEntry):
        return _matching((Candidate(one.name, one.summary) for one in entry), last)
    typed = LazyCommand(entry).load().make_context(entry.name, [*rest], resilient_parsing=True)
    by_name = _by_option(typed)
    only_words = "--" in rest
    expected = None if only_words else _open_option(by_name, rest)
    if expected is None and not only_words and last.startswith("-"):
        name, equals, value = last.partition("=")
        if not equals or name not in by_name:
            return _matching(_options(typed), last)
        return [
            Candidate(f"{name}={each.value}", each.help)
            for each in _values(typed, by_name[name], value)
        ]
    expected = expected or _open_argument(typed)
    return _values(typed, expected, last) if expected is not None else []


def _split(line: str) -> list[str]:
    """Return the words of an unfinished command line: a quote may be open, the last be empty."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=False)
    reader.whitespace_split = True
    reader.commenters = ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:
        return [*words, reader.token or ""]
    return [*words, ""] if not words or line[-1:].isspace() else words


def _entry(words: Sequence[str]) -> tuple[CommandEntry | tuple[CommandEntry, ...], Sequence[str]]:
    entries: tuple[CommandEntry, ...] = COMMANDS
    for number, word in enumerate(words):
        if word.startswith("-"):
            continue
        found = next((one for one in entries if word == one.name), None)
        if found is None:
            return (), ()
        if not found.under:
            return found, words[number + 1 :]
        entries = found.under
    return entries, ()


def _by_option(typed: Context) -> dict[str, Any]:
    return {
        name: one
        for one in typed.command.params
        if one.param_type_name == "option"
        for name in one.opts
    }


def _open_option(by_name: Mapping[str, Any], words: Sequence[str]) -> Any:
    """Return the option that takes the word after `words` as its value; None if none does.

    `by_name` is name, such as `--to` → option.
    """
    options = [n for n, word in enumerate(words) if word.startswith("-")]
    found = by_name.get(words[options[-1]]) if options else None
    if found is None or found.is_flag:
        return None
    if options[-1] == len(words) - 1 or found.metavar in ("FILE...", "PATH..."):
        return found
    return None


def _open_argument(typed: Context) -> Any:
    places = (one for one in typed.command.params if one.param_type_name == "argument")
    return next(
        (one for one in places if one.nargs == -1 or not is_typed(typed, str(one.name))), None
    )


def _options(typed: Context) -> Iterator[Candidate]:
    """Yield the options that may still be typed: those not typed yet, and the repeatable ones."""
    for param in dict.fromkeys(_by_option(typed).values()):
        if param.multiple or not is_typed(typed, param.name):
            yield Candidate(max(param.opts, key=len), param.help or "")
    yield Candidate("--help", "Show this message and exit.")


def _values(typed: Context, param: Any, prefix: str) -> list[Candidate]:
    """Return the values of the option or argument `param` that begin with `prefix`.

    Values that a repeatable argument already has are left out.
    """
    choices = getattr(param.type, "choices", None)
    if choices:
        return _matching((Candidate(str(getattr(one, "value", one))) for one in choices), prefix)
    source = _BY_NAME.get(param.name) or _BY_METAVAR.get((param.metavar or "").strip("[]"))
    if source is None:
        return []
    there = typed.params[param.name] or () if param.nargs == -1 else ()
    return [one for one in _matching(source(typed, prefix), prefix) if one.value not in there]


def _matching(found: Iterable[Candidate], prefix: str) -> list[Candidate]:
    """Return the candidates that begin with `prefix` and are printable."""
    return [one for one in found if one.value.startswith(prefix) and one.value.isprintable()]


def _names(module: str, function: str) -> _Source:
    """Return a source of candidates: the names that the function `function` of `module` returns.

    The module is imported when the source is asked.
    """
    return lambda _, __: map(Candidate, getattr(import_module(f"rebal.{module}"), function)())


def _documents(*kinds: str) -> _Source:
    schemas = re.compile(rf"rebal\.(?:{'|'.join(kinds)})/\d")

    def source(_: Context, prefix: str) -> Iterator[Candidate]:
        from rebal.inspectors.files import expanded

        folder = prefix[: prefix.rfind("/") + 1]
        for path in sorted(expanded(folder or ".").iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield Candidate(f"{folder}{path.name}/")
            elif path.suffix.lower() in ENDINGS and path.is_file() and schemas.search(_head(path)):
                yield Candidate(f"{folder}{path.name}")

    return source


def _head(path: Path) -> str:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_HEAD)
    return ""


def _scripts(typed: Context, prefix: str) -> Iterator[Candidate]:
    from rebal.planner.rehearsal.scripts import READY

    yield from (Candidate(name, one.about) for name, one in READY.items())
    yield from _documents("script")(typed, prefix)


def _variants(_: Context, prefix: str) -> Iterator[Candidate]:
    """Yield the completions of the comma-separated names of --compare.

    The names that are typed already stay in front, and are not offered again.
    """
    from rebal.planner.rehearsal.scene import VARIANTS

    typed = prefix[: prefix.rfind(",") + 1]
    yield from (
        Candidate(f"{typed}{name}", what)
        for name, what in VARIANTS.items()
        if name not in typed.split(",")
    )


def _parameters(_: Context, __: str) -> Iterator[Candidate]:
    from rebal.planner.rehearsal.scene import PARAMETERS

    yield from (Candidate(f"{name}=", one.about) for name, one in PARAMETERS.items())


def _schemas(_: Context, __: str) -> Iterator[Candidate]:
    for file in sorted((files("rebal.cli") / "data" / "schemas").iterdir(), key=lambda f: f.name):
        yield Candidate(file.name.removesuffix(".json"))


def _rules(_: Context, __: str) -> Iterator[Candidate]:
    """Yield the ids of the rules, found in their source texts: importing the rules is slow."""
    folder = Path(str(files("rebal.planner") / "rules"))
    texts = (file.read_text("utf-8") for kind in ("*.py", "*.yaml") for file in folder.rglob(kind))
    yield from map(Candidate, sorted({rule for text in texts for rule in _RULE.findall(text)}))


def _assignors(typed: Context, _: str) -> Iterator[Candidate]:
    if typed.info_name == "simulate":
        from rebal.cli.custom import custom_names

        yield from map(Candidate, (*OF_CONSUMERS, *OF_WORKERS, *custom_names()))
        return
    from rebal.groups.clients import assignors

    # Those that depend belong to Connect workers and Streams.
    yield from (Candidate(name) for name, one in assignors().items() if one.protocols != "depends")


def _profiles(_: Context, __: str) -> Iterator[Candidate]:
    from rebal.inspectors.connection.config import profiles

    yield from map(Candidate, profiles(os.environ))


def _groups(typed: Context, _: str) -> Iterator[Candidate]:
    """Yield the groups of the cluster that the typed options name; none if it answers too late."""
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.extend(_listed(typed.params)), daemon=True)
    thread.start()
    # A name that cannot be resolved, or a token that does not come, knows no time limit.
    thread.join(LIVE_SECONDS)
    yield from map(Candidate, sorted(names))


def _listed(values: Mapping[str, Any]) -> Iterable[str]:
    given = {name: values[name] for name in CONNECTION if values.get(name)}
    try:
        connection = Connection(timeout=LIVE_SECONDS, **given)
        if not connection.names_broker():
            return ()
        from rebal.inspectors.kafka.listing import group_names

        return group_names(connection.config())
    except (RebalError, OSError, ValueError):
        return ()


def _files_or_groups(typed: Context, prefix: str) -> Iterator[Candidate]:
    yield from _documents("plan", "snapshot")(typed, prefix)
    yield from _groups(typed, prefix)


_BY_NAME: Final[Mapping[str, _Source]] = {
    "assignors": _assignors,
    "to": _names("cli.params", "goals"),
    "to_client": _names("groups.clients", "consumer_libraries"),
    "profile": _profiles,
    "snapshot": _documents("snapshot"),
    "name": _schemas,
    "script": _scripts,
    "compare": _variants,
    "param": _parameters,
}
_FAMILIES: Final = _names("groups.clients", "families")
_BY_METAVAR: Final[Mapping[str, _Source]] = {
    "PLAN": _documents("plan"),
    "A": _documents("plan", "snapshot"),
    "B": _files_or_groups,
    "GROUP": _groups,
    "RULE": _rules,
    "FAMILY": _FAMILIES,
    "CLIENT_ID=]FAMILY": _FAMILIES,
}
