"""The groups that a command is about, as snapshots with their evidence merged into them.

A group is read live, from a snapshot file, or (`--evidence DIR`) from the tables that
`rebal fleet scan` wrote. With a broker named, the tables add what the scan saw of the members that
are still in the group, by member id. Readers are imported when something is read with them: a
Kafka client and a table reader cost more than most commands.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from rebal.cli.errors import ReadError, UsageError, did_you_mean, refuse
from rebal.cli.files import read_snapshot, the_one_snapshot
from rebal.cli.output import has_reader, say, say_all
from rebal.cli.params import Connection, EvidenceOptions, Lake, time_zone
from rebal.groups.commands import rebal
from rebal.groups.errors import RebalError
from rebal.groups.evidence.logs import log_coverage
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, GroupState
from rebal.inspectors.files import files_in
from rebal.planner.facts import listed, names

if TYPE_CHECKING:
    from rebal.groups.evidence.observations import Observation
    from rebal.inspectors.connection.config import ClusterConfig
    from rebal.inspectors.fleet.manifest import Manifest
    from rebal.inspectors.kafka.listing import GroupFailure
    from rebal.inspectors.logs.lines import LogReading

_Seen = TypeVar("_Seen")
_Made = TypeVar("_Made")
# Reading a few groups by name is quicker than reading all of them, many are not.
_FEW: Final = 20
_NO_PROBE: Final = "--probe reads a live group: give GROUP and -b HOST:PORT."


@dataclass
class EvidenceFiles:
    """The logs and configuration files that the options name.

    Notes of their readers are printed on stderr.
    """

    options: EvidenceOptions
    _read_of: object = field(default=None, init=False)
    _observations: tuple[Observation, ...] = field(default=(), init=False)

    def observations(self) -> tuple[Observation, ...]:
        """Return the facts about members (observations) in the files.

        The files are read again only if a log has changed.

        Raises:
            UsageError: `log_timezone` is no time zone.
        """
        named = self.options
        logs = (named.request_log, named.client_log, named.broker_log)
        read_of = tuple(map(_version, files_in([path for paths in logs for path in paths or ()])))
        if read_of != self._read_of:
            self._observations = tuple(self._read())
            self._read_of = read_of
        return self._observations

    def _read(self) -> list[Observation]:
        seen: list[Observation] = []
        for reading in self._logs():
            seen += (*reading.observations, *reading.logs)
            say_all(reading.notes)
        if self.options.inventory is not None:
            from rebal.inspectors.inventory.reader import read_inventory

            files = read_inventory(self.options.inventory)
            seen += files.declared
            say_all(files.notes)
        return seen

    def _logs(self) -> Iterator[LogReading]:
        zone = time_zone(self.options.log_timezone)
        if self.options.request_log:
            from rebal.inspectors.logs.requests.reader import read_request_log

            yield read_request_log(files_in(self.options.request_log), tz_offset=zone)
        if self.options.client_log:
            from rebal.inspectors.logs.client.reader import read_client_logs

            yield read_client_logs(self.options.client_log, tz_offset=zone)
        if self.options.broker_log:
            from rebal.inspectors.logs.broker import read_broker_log

            yield read_broker_log(files_in(self.options.broker_log), tz_offset=zone)

    def added_to(
        self, found: Sequence[GroupSnapshot], scan: Sequence[Observation] | None = None
    ) -> list[GroupSnapshot]:
        """Return the groups with the evidence of the files and of a scan merged into them.

        `scan` are the observations of the scan (None: those in the lake of the options). Without
        any observation the groups are returned unchanged.
        """
        if scan is None:
            scan = scan_observations(self.options.lake, [one.group.group_id for one in found])
        observations = (*self.observations(), *scan)
        merged = [merge(one, observations) for one in found] if observations else list(found)
        self._print_log_coverage(merged)
        return merged

    def _print_log_coverage(self, groups: Sequence[GroupSnapshot]) -> None:
        """Print which members' start the files of --client-log show, and for which they do not.

        For several groups, print only in how many of them the logs show any member's start. Without
        --client-log or members, print nothing.
        """
        groups = [one for one in groups if one.members]
        if not self.options.client_log or not groups:
            return
        if len(groups) > 1:
            say(
                "--client-log: shows the start of members of "
                f"{sum(bool(log_coverage(one).covered) for one in groups):,} of {len(groups):,} "
                "groups."
            )
            return
        (seen,) = groups
        labels = names(seen.members)
        found = log_coverage(seen)
        shown, rest = ([labels[each] for each in ids] for ids in (found.covered, found.not_covered))
        group = seen.group.group_id
        if not shown:
            say(f"--client-log: shows no start of a member that is in {group} now.")
        elif rest:
            say(f"--client-log: shows the start of {listed(shown)}, but not of {listed(rest)}.")
        else:
            every = "the only member" if len(shown) == 1 else f"all {len(shown)} members"
            say(f"--client-log: shows the start of {every} of {group}.")


@dataclass(frozen=True)
class GroupSource:
    """The source from which a command reads its one group, and the evidence that it adds to it.

    Either `group` is an id, and the group is read live or from a scan, or `snapshot` is a file.
    """

    group: str | None = None
    snapshot: Path | None = None
    connection: Connection = field(default_factory=Connection)
    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)

    @property
    def scanned(self) -> Lake | None:
        """Return the lake of --evidence if the group is read from it; None otherwise.

        It is read from the lake if there is one and neither a broker nor a snapshot is named.

        Raises:
            UsageError: no broker is named, but --probe needs one.
        """
        lake = None if self.snapshot is not None else self.evidence.lake
        if lake is None or self.connection.names_broker():
            return None
        if self.evidence.probe:
            raise UsageError("--probe reads a live group: name a broker with -b HOST:PORT.")
        return lake

    def named(self) -> GroupSource:
        """Return this source, with the default snapshot file if it names no group and no file."""
        known = self.group is not None or self.snapshot is not None
        return self if known else replace(self, snapshot=default_snapshot())

    def read(self) -> GroupSnapshot:
        """Return the one group that a command is about, with all evidence merged into it.

        A GROUP is read live; with a scan and no broker named, it is what the scan saw of it.
        Without a GROUP it is read from `snapshot`, else from the file that REBAL_SNAPSHOT names,
        else from the only `*.rebal.yaml` of the working folder (stderr names it).

        Raises:
            UsageError: no option names a group, two options do, or --probe has no live group.
            RebalError: the group or a file cannot be read.
        """
        refuse(
            {
                "give GROUP (live) or --snapshot FILE, not both.": (
                    self.group is not None and self.snapshot
                ),
                _NO_PROBE: self.evidence.probe and self.group is None,
            }
        )
        scanned = None if self.group is None else self.scanned
        if self.group is None:
            found = merge(read_snapshot(self.snapshot or default_snapshot()), ())
        elif scanned:
            (found,) = scan_snapshots(scanned, [self.group])
        else:
            from rebal.inspectors.kafka.read import read_groups

            config, asked = self.connection.config(), self.evidence
            (answer,) = read_groups(config, [self.group], probe=asked.probe, assignors=asked.names)
            if not isinstance(answer, GroupSnapshot):
                (failure,) = _hinted([answer], config)
                raise ReadError(failure.message)
            found = answer
        (merged,) = EvidenceFiles(self.evidence).added_to([found], () if scanned else None)
        return merged

    def added_to(self, found: GroupSnapshot) -> GroupSnapshot:
        """Return the group `found`, read before, with the evidence of the options merged in.

        Raises:
            UsageError: --probe, which needs a live group.
        """
        refuse({_NO_PROBE: self.evidence.probe})
        return (
            EvidenceFiles(self.evidence).added_to([found])[0]
            if self.evidence.option_words
            else found
        )


def read_several(
    source: GroupSource,
    names: Sequence[str],
    *,
    match: str | None = None,
    all_groups: bool = False,
    seen_only: bool = False,
    meanwhile: Callable[[], object] | None = None,
) -> tuple[list[GroupSnapshot], Sequence[GroupFailure]]:
    """Return the requested groups with all evidence, and the failures to read groups.

    With a snapshot file it is the group in that file; otherwise `names`, `match` or `all_groups`
    choose groups of the cluster or of the scan. `seen_only` leaves out `names` that the scan does
    not have. `meanwhile` is called while the brokers are asked.
    """
    if source.snapshot is not None:
        return [source.read()], ()
    failures: Sequence[GroupFailure] = ()
    scanned = source.scanned
    if scanned:
        seen = scan_snapshots(
            scanned, names, match=match, all_groups=all_groups, seen_only=seen_only
        )
    else:
        seen, failures = _read_live(source, names, match, all_groups, meanwhile)
    return EvidenceFiles(source.evidence).added_to(seen, () if scanned else None), failures


def _read_live(
    source: GroupSource,
    names: Sequence[str],
    match: str | None,
    all_groups: bool,
    meanwhile: Callable[[], object] | None,
) -> tuple[list[GroupSnapshot], list[GroupFailure]]:
    config = source.connection.config()
    from rebal.inspectors.kafka.read import read_groups, select_groups

    selected = select_groups(config, names, match=match, all_groups=all_groups)
    chosen = selected.group_ids
    if len(chosen) > 1 and sys.stderr.isatty():
        say(f"reading {len(chosen)} groups …")
    pool = ThreadPoolExecutor(1)
    reading = pool.submit(
        read_groups,
        config,
        chosen,
        probe=source.evidence.probe,
        assignors=source.evidence.names,
        coordinators=selected.coordinators,
    )
    if meanwhile is not None:
        meanwhile()
    # The pool is not waited for: Ctrl-C ends the command at once.
    pool.shutdown(wait=False)
    answers = reading.result()
    failures = _hinted([one for one in answers if not isinstance(one, GroupSnapshot)], config)
    return (
        [answer for answer in answers if isinstance(answer, GroupSnapshot)],
        [*failures, *selected.unlisted],
    )


def _hinted(failures: Sequence[GroupFailure], config: ClusterConfig) -> list[GroupFailure]:
    """Return the failures, with the nearest names added where a group does not exist."""
    if not any(failure.kind == "not-found" for failure in failures):
        return list(failures)
    from rebal.inspectors.kafka.listing import group_names

    try:
        names = group_names(config)
    except RebalError:
        return list(failures)
    return [
        msgspec.structs.replace(one, message=one.message + did_you_mean(one.group_id, names))
        if one.kind == "not-found" and one.group_id is not None
        else one
        for one in failures
    ]


def survey_of(
    source: GroupSource, match: str | None
) -> tuple[list[GroupSnapshot], list[GroupFailure], tuple[str, ...]]:
    """Return all groups (or those that match), the failures of others, and notes on the reading.

    With a scan and no broker named, the groups are those that existed at the end of the scan.
    """
    if source.scanned:
        seen = scan_snapshots(source.scanned, match=match, all_groups=match is None)
        return [one for one in seen if one.group.state is not GroupState.DEAD], [], ()
    config = source.connection.config()
    from rebal.inspectors.kafka.read import survey

    found = survey(config, match=match)
    return EvidenceFiles(source.evidence).added_to(found.groups), found.failures, found.notes


def scan_observations(lake: Lake | None, groups: Sequence[str]) -> tuple[Observation, ...]:
    """Return what the last scan in `lake` saw of the members of `groups`; print the scan's age.

    Empty if `lake` is None.

    Raises:
        TablesError: no finished scan is in the lake.
    """
    if lake is None:
        return ()
    from rebal.inspectors.tables.groups import read_observations
    from rebal.inspectors.tables.reader import open_tables

    tables = open_tables(lake.text, lake.options)
    wanted = set(groups)
    found: list[Observation] = []
    for name in groups if len(groups) <= _FEW else [None]:
        found += (one for one in read_observations(tables, name) if one.group_id in wanted)
    missing = sorted(wanted - {one.group_id for one in found})
    say(f"--evidence {lake}: {_age(tables.manifest)}.")
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        say(f"--evidence {lake}: it saw no join of {', '.join(missing[:3])}{more}.")
    return tuple(found)


def scan_snapshots(
    lake: Lake,
    groups: Sequence[str] = (),
    *,
    match: str | None = None,
    all_groups: bool = False,
    seen_only: bool = False,
) -> list[GroupSnapshot]:
    """Return the requested groups as the last scan in `lake` saw them; print the scan's age.

    `seen_only` leaves out groups that the scan did not see.

    Raises:
        TablesError: no finished scan is in the lake.
        UsageError: the scan saw no such group.
    """
    from rebal.inspectors.tables.groups import read_snapshots
    from rebal.inspectors.tables.reader import open_tables

    tables = open_tables(lake.text, lake.options)
    found: dict[str, GroupSnapshot] = {}
    for name in groups if not (match or all_groups) and len(groups) <= _FEW else [None]:
        found |= {one.group.group_id: one for one in read_snapshots(tables, name)}
    unseen = [name for name in groups if name not in found]
    if unseen and not seen_only:
        hint = did_you_mean(unseen[0], [one.group.group_id for one in read_snapshots(tables, None)])
        raise UsageError(
            f"--evidence {lake}: the scan saw no group {unseen[0]}.{hint} To read it "
            "live, name a broker: -b HOST:PORT. The groups that the scan saw are in its report:",
            rebal("fleet report", (lake.text,), lake.settings),
        )
    pattern = whole_name(match)
    chosen = [
        one
        for name, one in found.items()
        if all_groups or name in groups or (match is not None and pattern.fullmatch(name))
    ]
    if not (chosen or seen_only):
        raise UsageError(f"--evidence {lake}: the scan saw no group that matches {match}.")
    say(f"no broker was asked: {lake}, {_age(tables.manifest)}.")
    return chosen


def whole_name(match: str | None) -> re.Pattern[str]:
    """Return the pattern of --match, for whole group names; None gives one that matches all.

    Raises:
        UsageError: it is no regular expression.
    """
    try:
        return re.compile(".*" if match is None else match, re.DOTALL if match is None else 0)
    except re.error as error:
        raise UsageError(f"--match {match}: not a regular expression: {error}.") from None


def _age(manifest: Manifest) -> str:
    until = manifest.observed_until
    if until is None:
        return "as scanned, at no known time"
    from rebal.cli.render.text import span_text

    ago = span_text(datetime.now(UTC) - until)
    return f"as seen until {until.astimezone(UTC):%Y-%m-%d %H:%MZ}, {ago} ago"


def _version(path: Path) -> object:
    """Return a value that changes when the file is written: its path, size and time.

    If the file does not exist, it is the path alone.
    """
    try:
        found = path.stat()
    except OSError:
        return path
    return path, found.st_size, found.st_mtime_ns


def default_snapshot() -> Path:
    """Return the snapshot file to read if neither a group nor a file is named; print its name.

    It is the file that REBAL_SNAPSHOT names, else the only snapshot in the working folder.

    Raises:
        UsageError: REBAL_SNAPSHOT is not set, and the folder has no snapshot or several.
    """
    named = os.environ.get("REBAL_SNAPSHOT")
    if named:
        say(f"reading {named}, as REBAL_SNAPSHOT says.")
        return Path(named)
    found = Path(the_one_snapshot(Path.cwd()).name)
    say(f"reading {found}, the snapshot in this folder.")
    return found


def watch(
    look: Callable[[], _Seen],
    judge: Callable[[_Seen], _Made],
    blind: Callable[[_Made, str, timedelta], _Made],
    show: Callable[[_Made], None],
    *,
    seconds: float,
    every: float,
    decided: Callable[[_Made], bool] = lambda _: False,
    watched: Callable[[], bool] = has_reader,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> _Made:
    """Read, judge and show a group every `every` seconds, and return the last result.

    `look` reads the group, `judge` makes a result from it, `show` prints the result. The watch ends
    after `seconds`, when `decided` returns True for a result, or when `watched` returns False
    because nobody reads the output any longer.

    If the first reading fails, its error is raised, so that a wrong address is reported at once. If
    a later one fails, `blind` makes the result from the last result, the error's text and the time
    since the last attempt to read. Each reading opens new connections, so brokers may restart and
    tokens may be replaced.

    Raises:
        RebalError: the first reading failed, or a reading cannot be judged.
    """
    end, at = clock() + seconds, 0.0
    made: _Made | None = None
    while True:
        try:
            seen = look()
        except RebalError as error:
            if made is None:
                raise
            made = blind(made, str(error), timedelta(seconds=clock() - at))
        else:
            made = judge(seen)
        at = clock()
        show(made)
        left = end - at
        if decided(made) or left <= 0 or not watched():
            return made
        sleep(min(every, left))
