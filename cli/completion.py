"""Candidates for the word at the end of a command line: what the shell scripts ask rebal for.

typer's own scripts complete neither `host:port` nor names from a cluster safely (its script for zsh
evaluates them), so the scripts in `data/completion` print what `candidates` returns and the shell
quotes it. Nothing here raises: without an answer the shell offers files.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from rebal.cli.app import COMMANDS
from rebal.cli.commands.simulate_cmd import OF_CONSUMERS, OF_WORKERS
from rebal.cli.lazy import Entry, LazyCommand
from rebal.cli.params import ENDINGS, SHELLS, Connection, goals
from rebal.groups.errors import RebalError

LIVE_SECONDS: Final = 0.65
"""The longest wait for the names of a cluster's groups, the import of a Kafka client included."""
_GREEDY: Final = ("FILE...", "PATH...")
_HEAD: Final = 200
_CONNECTION: Final = ("bootstrap", "command_config", "overrides", "profile")


class Candidate(NamedTuple):
    """One possible word, and a few words on it."""

    value: str
    help: str = ""


class _Typed(NamedTuple):
    """A command line up to its last word: the command, what it has got, what is expected now.

    `params` are all parameters of the command, `expected` is the one whose value comes next (None:
    none); `values` holds the words of options by the parameter's name, `words` the arguments. Only
    arguments follow once `only_words` holds.
    """

    command: str
    params: Sequence[Any]
    expected: Any
    values: Mapping[str, list[str]]
    words: Sequence[str]
    only_words: bool


def candidates(line: str) -> list[Candidate]:
    """Return the words that may stand at the end of `line`, which ends at the cursor."""
    *before, last = _split(line)
    entry, rest = _entry(before[1:])
    if not isinstance(entry, Entry):
        return _matching((Candidate(one.name, one.summary) for one in entry), last)
    typed = _typed(entry.name, LazyCommand(entry).load().params, rest)
    if typed.expected is None and not typed.only_words and last.startswith("-"):
        name, equals, value = last.partition("=")
        param = _by_option(typed.params).get(name)
        if not equals or param is None:
            return _matching(_options(typed), last)
        found = _values(typed._replace(expected=param), value)
        return [Candidate(f"{name}={each.value}", each.help) for each in found]
    if typed.expected is None:
        typed = typed._replace(expected=_argument(typed))
    return _values(typed, last) if typed.expected is not None else []


def _split(line: str) -> list[str]:
    """Return the words of a command line that may end in an open quote; the last may be empty."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=False)
    reader.whitespace_split = True
    reader.commenters = ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:
        return [*words, reader.token or ""]
    return [*words, ""] if not words or line[-1:].isspace() else words


def _entry(words: Sequence[str]) -> tuple[Entry | tuple[Entry, ...], Sequence[str]]:
    """Return the command that the words name, or the commands that may follow them."""
    entries: tuple[Entry, ...] = COMMANDS
    for number, word in enumerate(words):
        if word.startswith("-"):
            continue
        found = next((one for one in entries if word in (one.name, one.alias)), None)
        if found is None:
            return (), ()
        if not found.under:
            return found, words[number + 1 :]
        entries = found.under
    return entries, ()


def _by_option(params: Sequence[Any]) -> dict[str, Any]:
    return {name: one for one in params if one.param_type_name == "option" for name in one.opts}


def _typed(command: str, params: Sequence[Any], words: Sequence[str]) -> _Typed:
    """Return what the words before the last one have given to the command."""
    by_name = _by_option(params)
    values: dict[str, list[str]] = {}
    arguments: list[str] = []
    expected = None
    only_words = False
    for word in words:
        option, equals, value = word.partition("=")
        if only_words:
            arguments.append(word)
        elif expected is not None and not word.startswith("-"):
            values.setdefault(expected.name, []).append(word)
            expected = expected if expected.metavar in _GREEDY else None
        elif word == "--":
            only_words, expected = True, None
        elif option in by_name and equals:
            values.setdefault(by_name[option].name, []).append(value)
            expected = None
        elif word in by_name:
            expected = None if by_name[word].is_flag else by_name[word]
        elif word[:2] in by_name and not word.startswith("--"):
            values.setdefault(by_name[word[:2]].name, []).append(word[2:])
            expected = None
        elif not word.startswith("-"):
            arguments.append(word)
    return _Typed(command, params, expected, values, arguments, only_words)


def _argument(typed: _Typed) -> Any:
    """Return the argument that the next word is for; None where all have one."""
    places = [one for one in typed.params if one.param_type_name == "argument"]
    if places and places[-1].nargs == -1:
        return places[min(len(typed.words), len(places) - 1)]
    return places[len(typed.words)] if len(typed.words) < len(places) else None


def _options(typed: _Typed) -> Iterator[Candidate]:
    """Yield the options that are not given yet, the repeatable ones always."""
    for param in typed.params:
        if param.param_type_name == "option" and (param.multiple or param.name not in typed.values):
            longest = max(param.opts, key=len)
            yield Candidate(longest, param.help or "")
    yield Candidate("--help", "Show this message and exit.")


def _values(typed: _Typed, prefix: str) -> list[Candidate]:
    """Return the values of the expected parameter that begin with `prefix`."""
    param = typed.expected
    choices = getattr(param.type, "choices", None)
    if choices:
        return _matching((Candidate(str(getattr(one, "value", one))) for one in choices), prefix)
    source = _BY_NAME.get(param.name) or _BY_METAVAR.get((param.metavar or "").strip("[]"))
    if source is None:
        return []
    found = _matching(source(typed, prefix), prefix)
    return [one for one in found if one.value not in typed.words]


def _matching(found: Iterable[Candidate], prefix: str) -> list[Candidate]:
    """Return the candidates that begin with `prefix`; names that cannot be printed are left out."""
    return [one for one in found if one.value.startswith(prefix) and one.value.isprintable()]


def _documents(*kinds: str) -> Callable[[_Typed, str], Iterator[Candidate]]:
    """Return a source of folders, and of files that hold documents of these kinds."""
    schemas = re.compile(rf"rebal\.(?:{'|'.join(kinds)})/\d")

    def source(_: _Typed, prefix: str) -> Iterator[Candidate]:
        from rebal.inspectors.files import expanded

        folder = prefix[: prefix.rfind("/") + 1]
        for path in sorted(expanded(folder or ".").iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield Candidate(f"{folder}{path.name}/")
            elif path.suffix.lower() in ENDINGS and path.is_file() and schemas.search(_head(path)):
                yield Candidate(f"{folder}{path.name}")

    return source


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD)
    except OSError:
        return ""


def _scripts(typed: _Typed, prefix: str) -> Iterator[Candidate]:
    """Yield the ready scripts, then the files of scripts."""
    from rebal.planner.rehearsal.scripts import READY

    yield from (Candidate(name, one.about) for name, one in READY.items())
    yield from _documents("script")(typed, prefix)


def _variants(_: _Typed, prefix: str) -> Iterator[Candidate]:
    """Yield the names of --compare, after those that are typed already."""
    from rebal.planner.rehearsal.variants import VARIANTS

    typed = prefix[: prefix.rfind(",") + 1]
    there = typed.split(",")
    yield from (
        Candidate(f"{typed}{name}", what) for name, what in VARIANTS.items() if name not in there
    )


def _parameters(_: _Typed, __: str) -> Iterator[Candidate]:
    from rebal.planner.rehearsal.parameters import PARAMETERS

    yield from (Candidate(f"{name}=", one.about) for name, one in PARAMETERS.items())


def _schemas(_: _Typed, __: str) -> Iterator[Candidate]:
    for file in sorted((files("rebal.cli") / "data" / "schemas").iterdir(), key=lambda f: f.name):
        yield Candidate(file.name.removesuffix(".json"))


def _rules(_: _Typed, __: str) -> Iterator[Candidate]:
    """Yield the ids of the rules by the names of their files: the rules themselves load slowly."""
    folder = files("rebal.planner") / "rules"
    names = chain.from_iterable(each.iterdir() for each in folder.iterdir() if each.is_dir())
    ids = {file.name[:-3].upper() for file in names if re.fullmatch(r"rb\d+\.py", file.name)}
    faults = (folder / "version_faults.yaml").read_text(encoding="utf-8")
    for rule in sorted(ids | set(re.findall(r"^ *- id: (RB\d+)$", faults, re.MULTILINE))):
        yield Candidate(rule)


def _assignors(typed: _Typed, _: str) -> Iterator[Candidate]:
    if typed.command == "simulate":
        from rebal.cli.custom import custom_names

        yield from map(Candidate, (*OF_CONSUMERS, *OF_WORKERS, *custom_names()))
        return
    from rebal.groups.clients import assignors

    # Those that depend belong to Connect workers and Streams.
    yield from (Candidate(name) for name, one in assignors().items() if one.protocols != "depends")


def _goals(_: _Typed, __: str) -> Iterator[Candidate]:
    yield from map(Candidate, goals())


def _libraries(_: _Typed, __: str) -> Iterator[Candidate]:
    from rebal.groups.clients import libraries

    yield from map(Candidate, libraries())


def _families(_: _Typed, __: str) -> Iterator[Candidate]:
    from rebal.groups.clients import families

    yield from map(Candidate, families())


def _profiles(_: _Typed, __: str) -> Iterator[Candidate]:
    from rebal.inspectors.connection.config import profiles

    yield from map(Candidate, profiles(os.environ))


def _shells(_: _Typed, __: str) -> Iterator[Candidate]:
    yield from map(Candidate, SHELLS)


def _groups(typed: _Typed, _: str) -> Iterator[Candidate]:
    """Yield the groups of the cluster that the options typed so far name; none if it is slow."""
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.extend(_listed(typed.values)), daemon=True)
    thread.start()
    # A name that cannot be resolved, or a token that does not come, knows no time limit.
    thread.join(LIVE_SECONDS)
    yield from map(Candidate, sorted(names))


def _listed(values: Mapping[str, list[str]]) -> Iterable[str]:
    given = {name: values[name] for name in _CONNECTION if name in values}
    overrides = given.pop("overrides", None)
    single = {name: found[-1] for name, found in given.items()}
    config_file = single.pop("command_config", None)
    try:
        connection = Connection(
            command_config=Path(config_file) if config_file else None,
            overrides=overrides,
            timeout=LIVE_SECONDS,
            **single,
        )
        if not connection.names_broker():
            return ()
        from rebal.inspectors.kafka.listing import group_names

        return group_names(connection.config())
    except (RebalError, OSError, ValueError):
        return ()


def _files_or_groups(typed: _Typed, prefix: str) -> Iterator[Candidate]:
    yield from _documents("plan", "snapshot")(typed, prefix)
    yield from _groups(typed, prefix)


_BY_NAME: Final[Mapping[str, Callable[[_Typed, str], Iterator[Candidate]]]] = {
    "assignors": _assignors,
    "to": _goals,
    "to_client": _libraries,
    "profile": _profiles,
    "snapshot": _documents("snapshot"),
    "name": _schemas,
    "script": _scripts,
    "compare": _variants,
    "param": _parameters,
}
_BY_METAVAR: Final[Mapping[str, Callable[[_Typed, str], Iterator[Candidate]]]] = {
    "PLAN": _documents("plan"),
    "A": _documents("plan", "snapshot"),
    "B": _files_or_groups,
    "GROUP": _groups,
    "RULE": _rules,
    "FAMILY": _families,
    "CLIENT_ID=]FAMILY": _families,
    "SHELL": _shells,
}
