"""`manifest.json`: what a finished run holds, what it was made from, and where the next goes on."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from rebal.groups.errors import DocumentError
from rebal.groups.model import Record
from rebal.inspectors.kafka.brokers import ClusterReading

SCHEMA: Final = "rebal.fleet-scan/2"
CURRENT: Final = "current"
MANIFEST: Final = "manifest.json"


class TableFile(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One Parquet file of a table; `path` is relative to the run's folder."""

    path: str
    rows: int


class TableEntry(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A table's files, in the order in which they are read."""

    rows: int = 0
    files: tuple[TableFile, ...] = ()


class Manifest(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run. Counts of records are of the whole history in the tables, earlier scans included.

    `read` is the number of records that the sources gave; `records` says what became of them, by
    Kafka's own name of the kind of record, and its numbers add up to `read`. `skipped` are what a
    source holds beside records (control batches, a segment's cut-off end), `requests` the lines of
    the request logs by what they were: each as of the last scan that read such. `offsets` is the
    last offset read by partition of `__consumer_offsets`; `breaks` are those up to which an earlier
    scan read and after which the next found some missing: the log cleaner came between, and what it
    took away was never read. `sources` are brokers, files and logs as they were named.
    `observed_from` and `observed_until` bound the times of what was read. `brokers` is what the
    last scan of a live cluster was told beside records.
    """

    schema: str = SCHEMA
    rebal: str = ""
    run: int
    finished_at: datetime
    observed_from: datetime | None = None
    observed_until: datetime | None = None
    sources: tuple[str, ...] = ()
    read: int = 0
    records: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    offsets: dict[int, int] = msgspec.field(default_factory=dict)
    breaks: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    brokers: ClusterReading | None = None
    tables: dict[str, TableEntry] = msgspec.field(default_factory=dict)


class _Head(msgspec.Struct):
    schema: str


def dump_manifest(manifest: Manifest) -> bytes:
    """The document, in a stable order."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the last finished run in `folder` (what `--out` named).

    Raises:
        DocumentError: no finished run is there, or it is damaged or of a newer rebal.
    """
    path = folder / CURRENT / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DocumentError(
            f"{folder}: no finished scan is there; make one with `rebal fleet scan --out {folder}`."
        ) from None
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA:
            raise DocumentError(
                f"{path}: its schema is {schema}, this rebal reads {SCHEMA}: "
                "use the rebal that wrote it, or scan again with --full."
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise DocumentError(f"{path}: not a manifest ({error}); scan again with --full.") from None
