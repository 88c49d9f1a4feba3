"""`rebal fleet scan`: read a cluster's history into tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli import options, output
from rebal.cli.errors import DONE, UsageError

if TYPE_CHECKING:
    from rebal.inspectors.fleet.job import Say, Tasks
    from rebal.inspectors.fleet.manifest import Manifest

_GROUPED: Final = (
    ("offset commits", ("OFFSET_COMMIT", "LEGACY_OFFSET_COMMIT")),
    ("of classic groups", ("GROUP_METADATA",)),
    ("of KIP-848 groups", ("CONSUMER_GROUP_",)),
    ("of share groups", ("SHARE_GROUP_",)),
    ("of streams groups", ("STREAMS_GROUP_",)),
    ("of kinds not known", ("UNKNOWN_KIND_",)),
    ("read twice", ("REPEATED",)),
    ("unreadable", ("UNREADABLE",)),
)


def command(
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the tables go; a scan adds to them.")
    ],
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets",
            metavar="FILE…",
            help="Captured records of __consumer_offsets: .jsonl, .jsonl.gz, Parquet, folders.",
        ),
    ] = None,
    segments: Annotated[
        list[str] | None,
        typer.Option(
            "--segments",
            metavar="FILE…",
            help="Log segments copied off brokers: __consumer_offsets-N folders, or their parent.",
        ),
    ] = None,
    request_log: Annotated[
        list[str] | None,
        typer.Option(
            "--request-log", metavar="FILE…", help="The brokers' request logs (.gz too), folders."
        ),
    ] = None,
    bootstrap: options.Bootstrap = None,
    command_config: options.CommandConfig = None,
    overrides: options.Overrides = None,
    profile: options.Profile = None,
    timeout: options.Timeout = 10,
    full: Annotated[
        bool, typer.Option("--full", help="Start anew; do not go on from the tables in DIR.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A Spark master; without it Spark runs in this process."),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option("--spark-conf", metavar="KEY=VALUE", help="One setting of Spark; repeatable."),
    ] = None,
    spark_jars: Annotated[
        list[str] | None,
        typer.Option("--spark-jars", metavar="JAR,…", help="Jars of Spark's Kafka source."),
    ] = None,
) -> int:
    """Read the history of all groups of a cluster into Parquet tables, in one pass.

    The records come from the brokers (-b), from captured files (--offsets) or from log segments
    (--segments); request logs add members' lists, versions, reasons and refusals. A later scan into
    the same DIR reads only what is new. Nothing is changed on the cluster. Needs Java 17.
    """
    given = [name for name, paths in (("--offsets", offsets), ("--segments", segments)) if paths]
    if len(given) > 1 or (given and bootstrap):
        named = " and ".join(given + (["-b"] if bootstrap else []))
        raise UsageError(f"{named}: give one source of records for one scan.")
    config = None
    if not given and (bootstrap or profile or command_config or not request_log):
        connection = options.Connection(bootstrap, command_config, overrides, profile, timeout)
        config = connection.config()
        if config.oauth is not None:
            raise UsageError("a fleet scan does not log in with OAUTHBEARER: use PLAIN or SCRAM.")
    from rebal.inspectors.fleet.job import ScanOrder, run_scan
    from rebal.inspectors.fleet.session import SparkSettings

    order = ScanOrder(
        out=out,
        config=config,
        offsets=tuple(offsets or ()),
        segments=tuple(segments or ()),
        request_logs=tuple(request_log or ()),
        full=full,
        spark=SparkSettings(
            master=master,
            conf=tuple(_pair(text) for text in spark_conf or ()),
            jars=tuple(jar for text in spark_jars or () for jar in text.split(",") if jar),
        ),
    )
    with _progress() as (say, tasks):
        manifest = run_scan(order, say, tasks)
    _sum_up(manifest, out)
    return DONE


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--spark-conf {text}: expected key=value.")
    return key.strip(), value


@contextmanager
def _progress() -> Iterator[tuple[Say, Tasks | None]]:
    """Where a person looks on: one line that changes; else a line a step."""
    if not sys.stderr.isatty():
        yield output.say, None
        return
    from rich.console import Console
    from rich.text import Text

    words = "starting Spark"
    with Console(stderr=True).status(Text(words)) as status:

        def say(text: str) -> None:
            nonlocal words
            words = output.escape(text)
            status.update(Text(words))

        def tasks(done: int, of: int) -> None:
            status.update(Text(f"{words} ({done:,} of {of:,} tasks)"))

        yield say, tasks


def _sum_up(manifest: Manifest, out: Path) -> None:
    if manifest.read:
        output.say(
            f"{manifest.read:,} records of __consumer_offsets: {_kinds(manifest.records)}"
            f"{_others(manifest.skipped)}."
        )
    if manifest.requests:
        lines, about = (manifest.requests.get(name, 0) for name in ("lines", "parsed"))
        cut_off = manifest.requests.get("cut_off", 0)
        more = f", {cut_off:,} cut off" if cut_off else ""
        output.say(f"{lines:,} lines of request logs, {about:,} about groups{more}.")
    rows = {name: entry.rows for name, entry in manifest.tables.items()}
    made = ", ".join(
        f"{rows.get(table, 0):,} {table.replace('_', ' ')}"
        for table in ("groups", "rebalances", "assignor_lists", "incidents", "errors")
    )
    output.say(f"{made} are in {out}; next: rebal fleet report {out}")


def _kinds(records: Mapping[str, int]) -> str:
    parts: list[str] = []
    for words, names in _GROUPED:
        amount = sum(
            count
            for kind, count in records.items()
            if any(kind == name or (name.endswith("_") and kind.startswith(name)) for name in names)
        )
        if amount or words == "unreadable":
            parts.append(f"{amount:,} {words}")
    unknown = sorted(kind for kind in records if kind.startswith("UNKNOWN_KIND_"))
    return ", ".join(parts) + (f" ({', '.join(unknown)})" if unknown else "")


def _others(counts: Mapping[str, int]) -> str:
    """`, 12 control records`: what else was counted."""
    return "".join(f", {amount:,} {name}" for name, amount in counts.items() if amount)
