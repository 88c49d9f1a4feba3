"""Sentences and documents on one `rebal fleet scan`, and on one `rebal fleet compact`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from rebal.cli.render.documents import Document, document_of
from rebal.groups.commands import rebal
from rebal.inspectors.fleet.lake.sweep import Compacted
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


class SummaryDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.fleet-summary/1`; counts are of the whole history in the tables.

    `records` says by kind what became of the `records_read`, and adds up to it; `skipped` counts
    what a source holds beside records, `request_log` its lines; `tables` is rows by table. Each
    of `last_offsets` is the last one read of a partition of `__consumer_offsets`, `breaks` are the
    offsets after which the log cleaner took records away between two scans.
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


def summary_lines(manifest: Manifest, out: str) -> Iterator[str]:
    """Yield one sentence each: the records read, the rows written, the next command."""
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


def summary_document(manifest: Manifest, out: str) -> SummaryDocument:
    """Return what one scan into the lake `out` read and made."""
    return document_of(
        SummaryDocument,
        manifest,
        folder=out,
        records_read=manifest.read,
        request_log=manifest.requests,
        last_offsets={str(number): last for number, last in manifest.offsets.items()},
        breaks={str(number): ends for number, ends in manifest.breaks.items()},
        tables={name: entry.rows for name, entry in manifest.tables.items()},
    )


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
