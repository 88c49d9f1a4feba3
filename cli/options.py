"""The options that several commands share, and the one way from them to a group's snapshot.

`Connection` holds those that name a cluster, `snapshot_for` finds the one group that a command is
about: live by its name, or from a snapshot file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli import scanned
from rebal.cli.errors import FailOn, ReadError, UsageError
from rebal.cli.output import Format, say

if TYPE_CHECKING:
    from rebal.groups.evidence.observations import Observation
    from rebal.groups.model import GroupSnapshot
    from rebal.inspectors.connection.config import ClusterConfig

_OFFSET: Final = re.compile(r"([+-])([01]\d):?([0-5]\d)")
_SECRET: Final = re.compile("password|secret|jaas|token|key", re.IGNORECASE)

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT,…", help="Brokers to ask first (REBAL_BOOTSTRAP)."
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config", metavar="PROPERTIES", help="Kafka's own client.properties file."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="One connection setting; repeat for more."),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="A section of your rebal configuration file."),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for brokers."),
]
Snapshot = Annotated[
    Path | None,
    typer.Option("--snapshot", metavar="FILE", help="Read a saved group; ask no broker."),
]
RequestLog = Annotated[
    list[Path] | None,
    typer.Option(
        "--request-log", metavar="FILE…", help="The brokers' request logs (.gz too, - is stdin)."
    ),
]
ClientLog = Annotated[
    list[Path] | None,
    typer.Option("--client-log", metavar="FILE…", help="The members' own logs (.gz too)."),
]
LogTimezone = Annotated[
    str | None,
    typer.Option(
        "--log-timezone",
        metavar="ZONE",
        help="Of log times that print none: Asia/Tokyo or +09:00 (default: determined).",
    ),
]
Inventory = Annotated[
    Path | None,
    typer.Option(
        "--inventory", metavar="PATH", help="What the next start will use: file or folder."
    ),
]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe", help="Ask the coordinator which assignors all members support (only reads)."
    ),
]
Assignors = Annotated[
    list[str] | None,
    typer.Option("--assignor", metavar="NAME", help="One more assignor to probe for; repeatable."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the answer.")]
Wide = Annotated[bool, typer.Option("--wide", help="Do not fit the text to the terminal.")]
Severity = Annotated[
    FailOn, typer.Option("--fail-on", help="The least severe finding that exits with 3.")
]
ExitZero = Annotated[
    bool, typer.Option("--exit-zero", help="Exit 0 whatever was found (not when something failed).")
]


@dataclass(frozen=True)
class Connection:
    """The options that name a cluster, as they were typed.

    `overrides` are KEY=VALUE texts, `timeout` is in seconds.
    """

    bootstrap: str | None = None
    command_config: Path | None = None
    overrides: Sequence[str] | None = None
    profile: str | None = None
    timeout: float = 10

    def config(self) -> ClusterConfig:
        """The connection that they, the environment and the configuration files describe.

        Raises:
            RebalError: no broker named, or a setting that cannot be used; the message names it.
        """
        from rebal.inspectors.connection.config import resolve

        return resolve(
            bootstrap=self.bootstrap,
            overrides=tuple(self.overrides or ()),
            command_config=self.command_config,
            profile=self.profile,
            env=os.environ,
            timeout_ms=round(self.timeout * 1000),
        )

    def typed(self, snapshot: Path | None = None) -> list[str]:
        """The same options, and --snapshot, for a command to paste, without a secret's value."""
        words: list[str] = []
        for name, value in (
            ("-b", self.bootstrap),
            ("--command-config", self.command_config),
            ("--profile", self.profile),
            ("--snapshot", snapshot),
        ):
            words += [name, str(value)] if value else []
        for pair in self.overrides or ():
            key, _, value = pair.partition("=")
            words += ["-X", f"{key}=…" if _SECRET.search(key) else f"{key}={value}"]
        return words


def snapshot_for(
    group: str | None,
    snapshot: Path | None,
    connection: Connection = Connection(),
    *,
    probe: bool = False,
    assignors: Sequence[str] = (),
    request_log: Sequence[Path] | None = None,
    client_log: Sequence[Path] | None = None,
    inventory: Path | None = None,
    log_timezone: str | None = None,
    evidence: Path | None = None,
) -> GroupSnapshot:
    """The one group that a command is about, with the evidence files merged into it.

    A GROUP is read live; with `evidence` and no broker named, it is what a scan saw of it. Else it
    is `snapshot`, else the file that REBAL_SNAPSHOT names, else the one `*.rebal.yaml` of the
    working folder (stderr says which).

    Raises:
        UsageError: nothing says which group, or two things do.
        RebalError: the group or a file cannot be read.
    """
    if group is not None and snapshot is not None:
        raise UsageError("give GROUP (live) or --snapshot FILE, not both.")
    if probe and group is None:
        raise UsageError("--probe asks a live group: give GROUP and -b.")
    seen: Sequence[Observation] = ()
    if group is None:
        from rebal.cli.files import read_snapshot

        found = read_snapshot(snapshot or _default_snapshot())
        seen = scanned.observations(evidence, [found.group.group_id])
    elif evidence is not None and scanned.is_offline(connection, probe=probe):
        (found,) = scanned.snapshots(evidence, [group])
    else:
        from rebal.inspectors.kafka.read import GroupFailure, read_groups

        (answer,) = read_groups(
            connection.config(), [group], probe=probe, assignors=tuple(assignors)
        )
        if isinstance(answer, GroupFailure):
            raise ReadError(answer.message)
        found = answer
        seen = scanned.observations(evidence, [group])
    files = evidence_files(request_log, client_log, inventory, log_timezone)
    return with_evidence(found, (*files, *seen))


def evidence_files(
    request_log: Sequence[Path] | None = None,
    client_log: Sequence[Path] | None = None,
    inventory: Path | None = None,
    log_timezone: str | None = None,
) -> tuple[Observation, ...]:
    """What the given logs and configuration files say; notes of the readers go to stderr.

    Raises:
        UsageError: `log_timezone` is no time zone.
    """
    seen: list[Observation] = []
    zone = _zone(log_timezone)
    if request_log:
        from rebal.inspectors.logs.requests.reader import read_request_log
        from rebal.inspectors.logs.text_input import files_in

        reading = read_request_log(files_in(request_log), tz_offset=zone)
        seen += (*reading.observations, *reading.logs)
        if not reading.counts.joins and not reading.counts.refusals:
            say(
                f"--request-log: {reading.counts.lines:,} lines and no member's join among them: "
                "a stable group sends none; leave the log on while one member restarts."
            )
        unread = reading.counts.broken + reading.counts.not_json
        if unread:
            say(
                f"--request-log: {unread:,} lines could not be read: they were cut off, or are in "
                "the format of brokers before 2.8; what they said is missing."
            )
    if client_log:
        from rebal.inspectors.logs.client.reader import read_client_logs

        logs = read_client_logs(client_log, tz_offset=zone)
        seen += (*logs.observations, *logs.logs)
        for note in logs.notes:
            say(note)
    if inventory is not None:
        from rebal.inspectors.inventory.reader import read_inventory

        files = read_inventory(inventory)
        seen += files.declared
        for note in files.notes:
            say(note)
    return tuple(seen)


def _zone(text: str | None) -> tzinfo | None:
    """The time zone that --log-timezone names.

    Raises:
        UsageError: it is neither one of the IANA database nor an offset.
    """
    if text is None:
        return None
    found = _OFFSET.fullmatch(text.strip())
    if found is not None:
        ahead = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-ahead if found[1] == "-" else ahead)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(text.strip())
    except (ValueError, OSError, LookupError):
        raise UsageError(
            f"--log-timezone {text}: no such time zone; give an IANA name such as Asia/Tokyo, or "
            "an offset such as +09:00."
        ) from None


def with_evidence(snapshot: GroupSnapshot, seen: Sequence[Observation]) -> GroupSnapshot:
    """`snapshot` with what was seen of its members bound to them, and what follows from it all."""
    from rebal.groups.evidence.merge import merge

    return merge(snapshot, seen)


def _default_snapshot() -> Path:
    from rebal.cli.files import the_one_snapshot

    named = os.environ.get("REBAL_SNAPSHOT")
    if named:
        say(f"reading {named}, as REBAL_SNAPSHOT says.")
        return Path(named)
    found = the_one_snapshot(Path.cwd())
    say(f"reading {found.name}, the snapshot in this folder.")
    return found
