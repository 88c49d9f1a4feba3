"""`rebal.fleet-compact/1`, the effect of one `rebal fleet compact`."""

from __future__ import annotations

from rebal.cli.render.documents import Document
from rebal.inspectors.fleet.lake.sweep import Compacted


class _Cluster(Document, frozen=True, kw_only=True):
    cluster: str
    removed_scans: tuple[int, ...]


class CompactDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.fleet-compact/1`; with `dry_run`, what would be done.

    `removed_files` are those that no kept scan has, `removed_log_entries` old ones of the tables'
    logs, and `freed_bytes` the size of both. `not_done` says of which clusters a scan that ran at
    the same time came first.
    """

    lake: str
    dry_run: bool
    clusters: tuple[_Cluster, ...]
    removed_files: int
    removed_log_entries: int
    freed_bytes: int
    not_done: tuple[str, ...]


def compact_document(done: Compacted, lake: str, *, dry_run: bool) -> CompactDocument:
    """Return what a compaction of `lake` has removed."""
    return CompactDocument(
        lake=lake,
        dry_run=dry_run,
        clusters=tuple(
            _Cluster(cluster=name, removed_scans=scans) for name, scans in done.dropped.items()
        ),
        removed_files=len(done.files),
        removed_log_entries=len(done.log),
        freed_bytes=sum(one.size for one in (*done.files, *done.log)),
        not_done=done.lost,
    )
