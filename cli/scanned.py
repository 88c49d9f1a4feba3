"""`--evidence DIR`: the tables that `rebal fleet scan` wrote, as evidence for single groups.

With a broker named, the groups are read live and what the scan saw of their members is bound to
those that are still there, by member id. With no broker named, the tables are the snapshot.
How old either is, is said on stderr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli.errors import UsageError
from rebal.cli.output import say

if TYPE_CHECKING:
    from rebal.cli.options import Connection
    from rebal.groups.evidence.observations import Observation
    from rebal.groups.model import GroupSnapshot
    from rebal.inspectors.fleet.manifest import Manifest

Evidence = Annotated[
    Path | None,
    typer.Option(
        "--evidence",
        metavar="DIR",
        help="What rebal fleet scan saw; with no broker named, the group as it was seen then.",
    ),
]
_BROKERS: Final = ("BOOTSTRAP", "COMMAND_CONFIG", "PROFILE", "X_BOOTSTRAP_SERVERS")
# Reading a few groups by name is quicker than reading all of them, many are not.
_FEW: Final = 20


def is_offline(connection: Connection, *, probe: bool) -> bool:
    """Is no broker named, neither by these options nor by the environment?

    Raises:
        UsageError: none is, and yet one is to be probed.
    """
    named = bool(connection.bootstrap or connection.command_config or connection.profile)
    named |= any(pair.startswith("bootstrap.servers=") for pair in connection.overrides or ())
    named |= any(os.environ.get(f"REBAL_{name}") for name in _BROKERS)
    if probe and not named:
        raise UsageError("--probe asks a live group: name a broker with -b HOST:PORT.")
    return not named


def observations(folder: Path | None, groups: Sequence[str]) -> tuple[Observation, ...]:
    """What the scan in `folder` saw of these groups' members; says how old it is.

    Raises:
        TablesError: no finished scan is in the folder.
    """
    if folder is None:
        return ()
    from rebal.inspectors.fleet.tables.reader import open_tables
    from rebal.inspectors.fleet.tables.seen import read_observations

    tables = open_tables(folder)
    wanted = set(groups)
    found: list[Observation] = []
    for name in groups if len(groups) <= _FEW else [None]:
        found += (one for one in read_observations(tables, name) if one.group_id in wanted)
    missing = sorted(wanted - {one.group_id for one in found})
    say(f"--evidence {folder}: {_age(tables.manifest)}.")
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        say(f"--evidence {folder}: it saw no join of {', '.join(missing[:3])}{more}.")
    return tuple(found)


def snapshots(
    folder: Path,
    groups: Sequence[str] = (),
    *,
    match: str | None = None,
    all_groups: bool = False,
) -> tuple[GroupSnapshot, ...]:
    """These groups as the scan in `folder` last saw them; says how old that is.

    Raises:
        TablesError: no finished scan is in the folder.
        UsageError: the scan saw no such group.
    """
    from rebal.inspectors.fleet.tables.groups import read_snapshots
    from rebal.inspectors.fleet.tables.reader import open_tables

    tables = open_tables(folder)
    found: dict[str, GroupSnapshot] = {}
    for name in groups if not (match or all_groups) and len(groups) <= _FEW else [None]:
        found |= {one.group.group_id: one for one in read_snapshots(tables, name)}
    unseen = [name for name in groups if name not in found]
    if unseen:
        raise UsageError(
            f"--evidence {folder}: the scan saw no group {unseen[0]}; which it saw: "
            f"rebal fleet report {folder}. To read it live, name a broker: -b HOST:PORT."
        )
    chosen = tuple(
        one
        for name, one in found.items()
        if all_groups or name in groups or (match is not None and _matches(match, name))
    )
    if not chosen:
        raise UsageError(f"--evidence {folder}: the scan saw no group that matches {match}.")
    say(f"no broker was asked: {folder}, {_age(tables.manifest)}.")
    return chosen


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise UsageError(f"--match {pattern}: not a regular expression: {error}.") from None


def _age(manifest: Manifest) -> str:
    until = manifest.observed_until
    if until is None:
        return "as scanned, at no known time"
    from rebal.cli.render.common import span_text

    ago = span_text(datetime.now(UTC) - until)
    return f"as seen until {until.astimezone(UTC):%Y-%m-%d %H:%MZ}, {ago} ago"
