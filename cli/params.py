"""The options that several commands share, each declared once, and the parsing of their texts.

A command takes a whole record of options as one parameter, such as `connection: params.Connection`;
`rebal.cli.lazy.expanded` shows its fields to typer. Groups and their evidence are read by
`sources`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli.errors import FailOn, UsageError, is_harmless, refuse
from rebal.cli.output import Format
from rebal.groups.commands import option, options
from rebal.groups.durations import seconds_of
from rebal.groups.errors import RebalError

if TYPE_CHECKING:
    from rebal.inspectors.connection.config import ClusterConfig, Origins
    from rebal.planner.commands import Given

TIMEOUT: Final = 10
_OFFSET: Final = re.compile(r"([+-])([01]\d):?([0-5]\d)")
ENDINGS: Final = (".yaml", ".yml", ".json")
"""File name endings of plans and snapshots."""
WATCH: Final = "30m"
"""Duration of `verify --watch` without --for."""

# Panels of the help in which the options of a concern stand, below a command's own.
_CONNECTION: Final = "Connection"
_EVIDENCE: Final = "Evidence"

NAMING: Final = re.compile("REBAL_(BOOTSTRAP|COMMAND_CONFIG|PROFILE|CONFIG|X_.+)$")
"""Environment variables that name a cluster or the settings of its connection."""


def _with_kept(context: typer.Context, settings: list[str] | None) -> list[str] | None:
    """Return the -X settings that a plan keeps, followed by the typed ones, which override them."""
    kept = (context.default_map or {}).get("overrides")
    return settings if not kept or settings == kept else [*kept, *(settings or ())]


def finite(value: float | None) -> float | None:
    """Return `value`; reject `nan` and `inf`, which typer's range check lets pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("expected a number of seconds.")
    return value


Snapshot = Annotated[
    Path | None,
    typer.Option("--snapshot", metavar="FILE", help="Read a saved group; ask no broker."),
]
LogTimezone = Annotated[
    str | None,
    typer.Option(
        "--log-timezone",
        metavar="ZONE",
        help="Zone of log times without one: Asia/Tokyo or +09:00 (default: determined).",
        rich_help_panel=_EVIDENCE,
    ),
]
LakeText = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        metavar="LAKE",
        help="Tables of rebal fleet scan; without a broker, the group as the scan saw it.",
        rich_help_panel=_EVIDENCE,
    ),
]
LakeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--lake-option",
        metavar="KEY=VALUE",
        help="One setting of the lake's store, such as AWS_ENDPOINT_URL; repeatable.",
        rich_help_panel=_EVIDENCE,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the answer.")]
Details = Annotated[
    bool, typer.Option("--details", help="Show reasons, paces, questions and all findings.")
]
Wide = Annotated[bool, typer.Option("--wide", help="Do not fit the text to the terminal.")]
Severity = Annotated[
    FailOn, typer.Option("--fail-on", help="The least severe finding that exits with 3.")
]
ExitZero = Annotated[
    bool,
    typer.Option(
        "--exit-zero", help="Exit with 0 whatever the findings are; a failure still exits with 1."
    ),
]


@dataclass(frozen=True)
class Connection:
    """The options that name a cluster, as they were typed.

    `overrides` are KEY=VALUE texts, `timeout` is in seconds. `missing` are environment variables
    that a plan's connection needs and that are not set.
    """

    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT,...",
            help="Brokers to ask first (REBAL_BOOTSTRAP).",
            rich_help_panel=_CONNECTION,
        ),
    ] = None
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="PROPERTIES",
            help="Kafka's own client.properties file.",
            rich_help_panel=_CONNECTION,
        ),
    ] = None
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "-X",
            metavar="KEY=VALUE",
            callback=_with_kept,
            help="One connection setting; repeat for more.",
            rich_help_panel=_CONNECTION,
        ),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="A section of your rebal configuration file.",
            rich_help_panel=_CONNECTION,
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            max=86_400,
            callback=finite,
            help="The longest wait for brokers.",
            rich_help_panel=_CONNECTION,
        ),
    ] = TIMEOUT
    missing: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Reject values that may be a misplaced secret, because printed commands repeat them.

        Raises:
            SettingError: a login in an address, or a text of -X that is no setting.
        """
        if self.overrides or "@" in (self.bootstrap or ""):
            from rebal.inspectors.connection.config import check_typed

            check_typed(self.bootstrap, self.overrides or ())

    def config(self) -> ClusterConfig:
        """Return the connection described by the options, the environment and configuration files.

        Raises:
            RebalError: no broker named, or a setting that cannot be used; the message names it.
        """
        if self.missing:
            raise UsageError(
                f"the plan's way to the brokers needs {' and '.join(self.missing)}, not set here: "
                "set it, or give the connection again: -b HOST:PORT, --command-config FILE, "
                "--profile NAME or -X KEY=VALUE."
            )
        from rebal.inspectors.connection.config import resolve

        return resolve(
            bootstrap=self.bootstrap,
            overrides=tuple(self.overrides or ()),
            command_config=self.command_config,
            profile=self.profile,
            env=os.environ,
            timeout_ms=round(self.timeout * 1000),
        )

    def origins(self) -> Origins:
        """Return the files, profile, variables and options that the settings come from.

        Raises:
            RebalError: a file that cannot be used.
        """
        from rebal.inspectors.connection.config import origins_of

        return origins_of(
            bootstrap=self.bootstrap,
            overrides=tuple(self.overrides or ()),
            command_config=self.command_config,
            profile=self.profile,
            env=os.environ,
        )

    def names_broker(self) -> bool:
        """Return whether a broker is named, by these options or by the environment."""
        variables = ("BOOTSTRAP", "COMMAND_CONFIG", "PROFILE", "X_BOOTSTRAP_SERVERS")
        return (
            bool(self.bootstrap or self.command_config or self.profile)
            or any(pair.startswith("bootstrap.servers=") for pair in self.overrides or ())
            or any(os.environ.get(f"REBAL_{name}") for name in variables)
        )

    def given(
        self,
        *,
        evidence: Sequence[str] = (),
        wishes: Sequence[str] = (),
        looks: Sequence[str] = (),
        snapshot: Path | None = None,
        plan: Path | None = None,
        left: Path | None = None,
    ) -> Given:
        """Return the options that printed commands repeat: these, without secrets, and more.

        Each argument adds the options of the field of `Given` with the same name.
        """
        beside = Path.cwd() if plan is None else Path(os.path.realpath(plan)).parent
        folder = os.path.relpath(Path.cwd(), beside)
        from rebal.planner.commands import OFFLINE, Given

        settings = self._settings()
        words = (
            *(option("-b", self.bootstrap) if self.bootstrap else ()),
            *(option("--command-config", str(self.command_config)) if self.command_config else ()),
            *(option("--profile", self.profile) if self.profile else ()),
            *options("-X", list(filter(is_harmless, settings))),
            *(() if self.timeout == TIMEOUT else ("--timeout", f"{self.timeout:g}")),
        )
        left_out = [
            f"REBAL_X_{pair.partition('=')[0].upper().replace('.', '_')}"
            for pair in settings
            if not is_harmless(pair)
        ]
        properties = self.command_config or os.environ.get("REBAL_COMMAND_CONFIG")
        brokers, client = self._reached()
        return Given(
            connection=words,
            evidence=tuple(evidence),
            wishes=tuple(wishes),
            looks=tuple(looks),
            snapshot=None if snapshot is None else str(snapshot),
            plan=None if plan is None else str(plan),
            left=None if left is None else str(left),
            brokers=brokers,
            client=client,
            properties=None if properties is None else str(properties),
            variables=(*left_out, *([] if self.names_broker() else [OFFLINE])),
            environment=tuple(sorted(filter(NAMING.match, os.environ))),
            folder="" if folder == "." else folder,
        )

    def _settings(self) -> list[str]:
        """Return the -X settings that are in effect, as KEY=VALUE."""
        if not self.overrides:
            return []
        from rebal.inspectors.connection.config import in_effect

        return [f"{key}={value}" for key, value in in_effect(self.overrides).items()]

    def _reached(self) -> tuple[str | None, tuple[str, ...] | None]:
        """Return the bootstrap servers, and kafka-python's command-line options to reach them.

        Both are None if no broker is named or the settings cannot be used. The options alone are
        None if kafka-python has none that fit.
        """
        if not self.names_broker():
            return None, None
        from rebal.inspectors.connection.translate import admin_cli_options

        try:
            config = self.config()
        except RebalError:
            return None, None
        return config.bootstrap, admin_cli_options(config)


@dataclass(frozen=True)
class Lake:
    """A lake: the folder or URL with the tables of scans (`text`), and settings of its store."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the `--lake-option` words for a printed command, without possible secrets."""
        pairs = [f"{key}={value}" for key, value in self.options.items()]
        return options("--lake-option", list(filter(is_harmless, pairs)))

    @property
    def option_words(self) -> tuple[str, ...]:
        """Return the words of --evidence and --lake-option that name this lake in a command."""
        return (*option("--evidence", self.text), *self.settings)


def lake_options(pairs: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of `--lake-option`, key → value.

    Raises:
        UsageError: one is not KEY=VALUE.
    """
    return dict(key_and_value("--lake-option", pair) for pair in pairs or ())


@dataclass(frozen=True)
class EvidenceOptions:
    """The options that add evidence to what the brokers report, as they were typed."""

    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Ask the coordinator which assignors all members support (only reads).",
            rich_help_panel=_EVIDENCE,
        ),
    ] = False
    assignors: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            metavar="NAME",
            help="One more assignor to probe for; repeatable.",
            rich_help_panel=_EVIDENCE,
        ),
    ] = None
    request_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--request-log",
            metavar="FILE...",
            help="The brokers' request logs (.gz too, - is stdin).",
            rich_help_panel=_EVIDENCE,
        ),
    ] = None
    client_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--client-log",
            metavar="FILE...",
            help="The members' own logs: files, folders, patterns (.gz too, - is stdin).",
            rich_help_panel=_EVIDENCE,
        ),
    ] = None
    broker_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--broker-log",
            metavar="FILE...",
            help="The brokers' own logs, server.log (.gz too, - is stdin).",
            rich_help_panel=_EVIDENCE,
        ),
    ] = None
    log_timezone: LogTimezone = None
    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            metavar="PATH",
            help="Configuration of the next start: file or folder.",
            rich_help_panel=_EVIDENCE,
        ),
    ] = None
    evidence: LakeText = None
    lake_option: LakeOption = None

    def __post_init__(self) -> None:
        """Check that the evidence options fit each other.

        Raises:
            UsageError: they do not; for example, two of them read standard input.
        """
        stdin = " - and ".join(name for name, paths in self._files().items() if "-" in paths)
        refuse(
            {
                "--assignor names an assignor to probe for: add --probe.": (
                    self.assignors and not self.probe
                ),
                "--lake-option is a setting of a lake: name the lake with --evidence.": (
                    self.lake_option and self.evidence is None
                ),
                f"{stdin} -: standard input can be read once; write one of them to a file.": (
                    " and " in stdin
                ),
            }
        )

    @property
    def lake(self) -> Lake | None:
        """Return the lake of --evidence, with its settings; None without --evidence.

        Raises:
            UsageError: a setting is not KEY=VALUE.
        """
        text = self.evidence
        return None if text is None else Lake(text, lake_options(self.lake_option))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the assignors to probe for besides Kafka's own.

        Raises:
            UsageError: a name is empty.
        """
        return tuple(map(assignor_name, self.assignors or ()))

    @property
    def option_words(self) -> tuple[str, ...]:
        """Return these options as they were typed, without secrets, for a printed command."""
        return (
            *(("--probe",) if self.probe else ()),
            *options("--assignor", self.assignors or ()),
            *(word for name, paths in self._files().items() for word in options(name, paths)),
            *(option("--log-timezone", self.log_timezone) if self.log_timezone else ()),
            *(self.lake.option_words if self.lake else ()),
        )

    def _files(self) -> dict[str, list[str]]:
        named = {
            "--request-log": self.request_log,
            "--client-log": self.client_log,
            "--broker-log": self.broker_log,
            "--inventory": [self.inventory] if self.inventory else None,
        }
        return {name: [str(path) for path in paths or ()] for name, paths in named.items()}


def key_and_value(name: str, text: str) -> tuple[str, str]:
    """Return the key and the value of a text KEY=VALUE, typed for the option `name`.

    Raises:
        UsageError: the key, the equals sign or the value is missing.
    """
    key, _, value = text.partition("=")
    if not key.strip() or not value.strip("="):
        # Not repeated: it may be a secret that was typed without its key, which may end with `=`.
        raise UsageError(f"{name}: expected KEY=VALUE (yours is not repeated here).")
    return key.strip(), value


def goals() -> tuple[str, ...]:
    """Return the goals that --to accepts for every group.

    A custom assignor is a goal too, if the group's evidence shows it.
    """
    from rebal.groups.clients import assignors

    # Assignors that depend belong to Connect workers and Streams.
    by_name = (name for name, one in assignors().items() if one.protocols != "depends")
    return ("cooperative", "eager", "consumer", "streams", "classic", *by_name)


def assignor_name(text: str) -> str:
    """Return the assignor's name if `text` is one of Kafka's assignor classes, else `text` itself.

    Raises:
        UsageError: the text is empty.
    """
    if not text:
        raise UsageError("--assignor: expected a name, such as range.")
    if not text.endswith("Assignor"):
        return text
    from rebal.groups.clients import assignor_of

    return assignor_of(text) or text


def check_ending(out: Path | None) -> None:
    """Check that a plan file's name ends with its format: .yaml, .yml or .json.

    Raises:
        UsageError: it does not.
    """
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {out}: the ending says the format: use .yaml, .yml or .json.")


def batch_of(text: str) -> int:
    """Return how many members restart at a time by --batch; 0 for `all`.

    Raises:
        UsageError: it is neither a number from 1 on nor `all`.
    """
    if text == "all":
        return 0
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise UsageError(
            f"--batch {text[:100]}: give a number of members to restart at a time, or all."
        )
    return int(text)


def duration(text: str, option: str = "--for") -> float:
    """Return the seconds of a time such as `90s`, `30m`, `1h`, `7d` or a plain number.

    `option` is the option to name in an error.

    Raises:
        UsageError: the text has another form.
    """
    try:
        return seconds_of(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}.") from None


def time_zone(text: str | None) -> tzinfo | None:
    """Return the time zone that --log-timezone names; None without a name.

    Raises:
        UsageError: it is neither a name of the IANA database nor an offset.
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
