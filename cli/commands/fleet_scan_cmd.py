"""`rebal fleet scan`: read a cluster's history into tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, UsageError, as_usage, refuse
from rebal.inspectors.errors import SettingError

if TYPE_CHECKING:
    from rebal.inspectors.fleet.job import Say
    from rebal.inspectors.fleet.spark.tasks import Tasks


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
    bootstrap: params.Bootstrap = None,
    command_config: params.CommandConfig = None,
    overrides: params.Overrides = None,
    profile: params.Profile = None,
    timeout: params.Timeout = 10,
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
    if len(given) > 1 or (given and bootstrap):
        named = " and ".join(given + (["-b"] if bootstrap else []))
        raise UsageError(f"{named}: a scan reads records from one source; give only one.")
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
    if not given and (bootstrap or profile or command_config or not request_log):
        connection = params.Connection(bootstrap, command_config, overrides, profile, timeout)
        config = connection.config()
    from rebal.cli.render.fleet.summary import summary_document, summary_lines
    from rebal.inspectors.fleet.job import ScanOrder, run_scan, run_scans
    from rebal.inspectors.fleet.lake.place import find_place
    from rebal.inspectors.fleet.spark.session import SparkSettings

    place = find_place(out, params.lake_options(lake_option))
    order = ScanOrder(
        out=place,
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
                output.say_all(summary_lines(manifest, out))
    with as_usage(SettingError), _progress() as (say, tasks):
        manifest = run_scan(order, say, tasks)
    if form == "text":
        output.say_all(summary_lines(manifest, out))
    else:
        body = summary_document(manifest, out)
        output.write(output.envelope("fleet-summary", body, DONE, form))
    return DONE


@contextmanager
def _progress() -> Iterator[tuple[Say, Tasks | None]]:
    """Show progress: one line for each step, on a terminal a bar of its running tasks too."""
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
