"""`rebal fleet compact`: removal of the files in a lake that no kept scan needs."""

from typing import Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, FAILED
from rebal.cli.render.documents import Document


class _Cluster(Document, frozen=True, kw_only=True):
    cluster: str
    removed_scans: tuple[int, ...]


class CompactDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.fleet-compact/1`; with `dry_run`, what would be done.

    `removed_files` counts files that no kept scan has, `removed_log_entries` old entries of the
    tables' logs, and `freed_bytes` is the size of both. `not_done` has a sentence for each cluster
    that was left because a scan ran at the same time.
    """

    lake: str
    dry_run: bool
    clusters: tuple[_Cluster, ...]
    removed_files: int
    removed_log_entries: int
    freed_bytes: int
    not_done: tuple[str, ...]


def command(
    lake: Annotated[
        str,
        typer.Argument(metavar="LAKE", help="What rebal fleet scan wrote; LAKE#CLUSTER for one."),
    ],
    *,
    retain: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Keep scans of this time, such as 90d (default: as the last scan did).",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    lake_option: params.LakeOption = None,
    form: Annotated[
        output.Format,
        typer.Option("--output", "-o", help="How to print what was removed."),
    ] = "text",
) -> int:
    """Remove at once what no kept scan of a lake needs.

    A cluster's last two scans are kept in any case. Scans that are kept read as before, and one
    that is under way is not disturbed. The exit code is 0, or 1 when a scan that ran at the same
    time came first: what was removed by then is said, and the next call does the rest. Neither Java
    nor Spark is needed. With -o json or yaml a document on stdout says the same.
    """
    from rebal.inspectors.fleet.lake.run import compact
    from rebal.inspectors.tables.reader import open_clusters

    seconds = None if retain is None else params.duration(retain, "--retain")
    tables = open_clusters(lake, params.lake_options(lake_option))
    clusters = [one.manifest.cluster for one in tables]
    done = compact(tables[0].place, clusters, retain=seconds, dry=dry_run)
    code = FAILED if done.lost else DONE
    freed_bytes = sum(one.size for one in (*done.files, *done.log))
    if form != "text":
        body = CompactDocument(
            lake=lake,
            dry_run=dry_run,
            clusters=tuple(
                _Cluster(cluster=name, removed_scans=scans) for name, scans in done.dropped.items()
            ),
            removed_files=len(done.files),
            removed_log_entries=len(done.log),
            freed_bytes=freed_bytes,
            not_done=done.lost,
        )
        output.write(output.envelope("fleet-compact", body, code, form))
        return code
    for cluster in clusters:
        gone = done.dropped.get(cluster, ())
        if gone:
            scans = f"scan {gone[0]}" if len(gone) == 1 else f"scans {gone[0]} to {gone[-1]}"
            output.say(f"{'would remove' if dry_run else 'removed'} {scans} of {cluster}")
    output.say(
        f"{'would free' if dry_run else 'freed'} {freed_bytes / 1_000_000:,.1f} MB: "
        f"{len(done.files):,} files that no kept scan has, {len(done.log):,} old log entries"
    )
    output.say_all(done.lost)
    return code
