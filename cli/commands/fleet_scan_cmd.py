"""`rebal fleet scan`: read a cluster's history into tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, UsageError, as_usage, refuse
from rebal.cli.render.documents import Document, document_of
from rebal.groups.commands import rebal
from rebal.inspectors.errors import SettingError

if TYPE_CHECKING:
    from rebal.inspectors.fleet.manifest import Manifest
    from rebal.inspectors.fleet.spark.tasks import Say, Tasks


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


class SummaryDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.fleet-summary/1`; record counts cover all scans up to this one.

    `records` splits `records_read` by the kind of record. `skipped` counts the entries of the
    sources that are no records, in this scan only; `request_log` counts lines of request logs by
    kind; `tables` is table → number of rows. `last_offsets` is the last offset read of each
    partition of `__consumer_offsets`. `breaks` is partition → the offsets after which the log
    cleaner removed records between two scans.
    """

    folder: str
    cluster: str
    run: int
    finished_at: datetime
    observed_from: datetime | None
    observed_until: datetime | None
    sources: tuple[str, ...]
    records_read: int
    records: dict[str, int]
    skipped: dict[str, int]
    request_log: dict[str, int]
    last_offsets: dict[str, int]
    breaks: dict[str, tuple[int, ...]]
    tables: dict[str, int]


def command(
    *,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="LAKE",
            help="A folder or a URL (s3://, abfss://, gs://, hdfs://); a scan adds to it.",
        ),
    ],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="The cluster, where neither brokers nor files say it."
        ),
    ] = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets",
            metavar="PATH...",
            help="Captured records of __consumer_offsets: .jsonl, .jsonl.gz, Parquet, folders.",
        ),
    ] = None,
    segments: Annotated[
        list[str] | None,
        typer.Option(
            "--segments",
            metavar="PATH...",
            help="Log segments copied off brokers: __consumer_offsets-N folders, or their parent.",
        ),
    ] = None,
    request_log: Annotated[
        list[str] | None,
        typer.Option(
            "--request-log", metavar="PATH...", help="The brokers' request logs (.gz too), folders."
        ),
    ] = None,
    log_timezone: params.LogTimezone = None,
    connection: params.Connection,
    full: Annotated[
        bool, typer.Option("--full", help="Start anew; do not go on from the cluster's last scan.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Scan again and again, such as every 5m, until Ctrl-C."),
    ] = None,
    retain: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Keep scans of this time readable, such as 90d (default: as the last scan did).",
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A Spark master, or sc://HOST:PORT of Spark Connect; without it Spark runs in "
            "this process.",
        ),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option("--spark-conf", metavar="KEY=VALUE", help="One setting of Spark; repeatable."),
    ] = None,
    lake_option: params.LakeOption = None,
    form: Annotated[
        output.Format,
        typer.Option("--output", "-o", help="How to print what was read and made."),
    ] = "text",
) -> int:
    """Read the history of all groups of a cluster into Delta tables, in one pass.

    The records come from the brokers (-b), from captured files (--offsets) or from log segments
    (--segments); request logs add assignor lists, versions, reasons and rejected joins. A later
    scan into the same lake reads only new records. The lake keeps a cluster's last two scans, with
    --retain those of more time. Nothing is changed on the cluster. It needs Java 17, but for a
    server of Spark Connect. The counts are printed on stderr; with -o json or yaml they are a
    document on stdout.
    """
    given = [name for name, paths in (("--offsets", offsets), ("--segments", segments)) if paths]
    if len(given) > 1 or (given and connection.bootstrap):
        several = " and ".join(given + (["-b"] if connection.bootstrap else []))
        raise UsageError(f"{several}: a scan reads records from one source; give only one.")
    seconds = None if every is None else params.duration(every, "--every")
    refuse(
        {
            f"--cluster {cluster}: expected a name without #, which divides LAKE#NAME.": (
                "#" in (cluster or "")
            ),
            "--every prints sentences: leave out -o.": seconds is not None and form != "text",
            f"--every {every}: expected a second or more.": seconds is not None and seconds < 1,
        }
    )
    config = None
    named = connection.bootstrap or connection.profile or connection.command_config
    if not given and (named or not request_log):
        config = connection.config()
    from rebal.inspectors.fleet.job import ScanOrder, run_scan, run_scans
    from rebal.inspectors.fleet.lake.place import find_place
    from rebal.inspectors.fleet.spark.session import SparkSettings

    order = ScanOrder(
        out=find_place(out, params.lake_options(lake_option)),
        cluster=cluster,
        config=config,
        offsets=tuple(offsets or ()),
        segments=tuple(segments or ()),
        request_logs=tuple(request_log or ()),
        log_timezone=params.time_zone(log_timezone),
        full=full,
        retain=None if retain is None else params.duration(retain, "--retain"),
        spark=SparkSettings(
            master=master,
            conf=tuple(params.key_and_value("--spark-conf", text) for text in spark_conf or ()),
        ),
    )
    if seconds is not None:
        with as_usage(SettingError):
            for manifest in run_scans(order, seconds, output.say):
                output.say_all(_lines(manifest, out))
    with as_usage(SettingError), _progress() as (say, tasks):
        manifest = run_scan(order, say, tasks)
    if form == "text":
        output.say_all(_lines(manifest, out))
    else:
        body = document_of(
            SummaryDocument,
            manifest,
            folder=out,
            records_read=manifest.read,
            request_log=manifest.requests,
            last_offsets={str(number): last for number, last in manifest.offsets.items()},
            breaks={str(number): ends for number, ends in manifest.breaks.items()},
            tables={name: entry.rows for name, entry in manifest.tables.items()},
        )
        output.write(output.envelope("fleet-summary", body, DONE, form))
    return DONE


def _lines(manifest: Manifest, out: str) -> Iterator[str]:
    """Yield the sentences of the summary: records read, lines read, rows written, next command."""
    if manifest.read:
        others = "".join(
            f", {number:,} {name}" for name, number in manifest.skipped.items() if number
        )
        yield (
            f"{manifest.read:,} records of __consumer_offsets: {_kinds(manifest.records)}{others}."
        )
    if manifest.requests:
        lines, about = (manifest.requests.get(name, 0) for name in ("lines", "parsed"))
        cut_off = manifest.requests.get("cut_off", 0)
        more = f", {cut_off:,} cut off" if cut_off else ""
        yield f"{lines:,} lines of request logs, {about:,} about groups{more}."
    rows = {name: entry.rows for name, entry in manifest.tables.items()}
    made = ", ".join(
        f"{rows.get(table, 0):,} {table.replace('_', ' ')}"
        for table in ("groups", "rebalances", "assignor_lists", "incidents", "errors")
    )
    yield f"{made} are in {out}; next: {rebal('fleet report', (out,), ())}"


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


@contextmanager
def _progress() -> Iterator[tuple[Say, Tasks | None]]:
    """Yield a function that prints a step of the scan, and one that shows its running Spark tasks.

    The second is None if stderr is not a terminal, where a bar cannot be drawn.
    """
    if not sys.stderr.isatty():
        yield output.say, None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("tasks,"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        step = bar.add_task("step", total=None)

        def say(text: str) -> None:
            output.say(text)
            bar.reset(step, total=None)

        def tasks(done: int, of: int) -> None:
            bar.update(step, completed=done, total=of)

        say("starting Spark")
        yield say, tasks
