"""The manifest of a finished scan: its tables, its sources, and how far it read each source.

The lake's table `scans` holds it as a JSON document, one row for each scan.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from rebal.groups.errors import DocumentError
from rebal.groups.model import Record
from rebal.inspectors.kafka.brokers import ClusterReading

SCHEMA: Final = "rebal.fleet-scan/8"
UNNAMED: Final = "unnamed"
"""The cluster name used if neither the records nor `--cluster` name one."""


class TableEntry(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The number of a cluster's rows in a table, and the Delta table version that holds them."""

    rows: int = 0
    version: int = 0


class ReadLog(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A request log that was read up to the byte `until`, the end of a line.

    A later scan recognizes the log by `digest`, whatever the file's name: the SHA-256 of the log's
    first bytes, of 4096 at most. For a gzip file `digest` is of the packed bytes and `until` is the
    file's size. A gzip file is also recognized as a plain log that was packed later, by its
    unpacked text.
    """

    digest: str
    until: int


class Manifest(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The manifest of one scan. Record counts cover all scans up to this one.

    `cluster` is the id from the brokers, or the name given with `--cluster`. `run` is the scan's
    number in its cluster, the column `scan_id` of the tables. `finished_at` is when the scan ended.

    `read` is the number of records that the sources gave. `records` splits it by Kafka's name of
    the record kind, and its numbers add up to `read`. `skipped` counts, in this scan only, source
    entries that are no records (control batches, a segment's cut-off end). `requests` counts the
    lines of request logs by kind.

    `offsets` is the last offset read of each partition of `__consumer_offsets`. `breaks` are, by
    partition, the last offsets of earlier scans after which records are missing: the log cleaner
    removed records that no scan had read. `topics` maps topic ids to names, from commits of Kafka
    4.1 and later.

    `log_ahead_ms` is how far the clock of request logs that print no time zone is ahead of UTC.
    `logs` are the request logs that were read, so that the next scan reads only new lines.
    `sources` are the names of brokers, files and logs. `observed_from` and `observed_until` are the
    first and last time in the sources.

    `brokers` is what the last scan of a live cluster read of brokers and topics, without the log
    end offsets: these are a table. `retain` is how long scans are kept, in seconds (None: only the
    last two). `tables` are the tables for readers, `inputs` those that the next scan reads.
    """

    schema: str = SCHEMA
    rebal: str = ""
    cluster: str = ""
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
    topics: dict[str, str] = msgspec.field(default_factory=dict)
    log_ahead_ms: int | None = None
    logs: tuple[ReadLog, ...] = ()
    brokers: ClusterReading | None = None
    retain: float | None = None
    tables: dict[str, TableEntry] = msgspec.field(default_factory=dict)
    inputs: dict[str, TableEntry] = msgspec.field(default_factory=dict)


EMPTY_MANIFEST: Final = Manifest(run=0, finished_at=datetime(1970, 1, 1, tzinfo=UTC))
"""The manifest that a cluster's first scan, or a full one, continues from."""


def load_manifest(text: str, place: str) -> Manifest:
    """Return the manifest in the JSON document `text`; `place` names the lake in error messages.

    Raises:
        DocumentError: the document is damaged or has another schema version.
    """
    try:
        schema = msgspec.json.decode(text, type=dict[str, Any]).get("schema", SCHEMA)
        if schema != SCHEMA:
            raise DocumentError(
                f"{place}: the schema of its last scan is {schema}, this rebal reads {SCHEMA}: "
                "use the rebal that wrote it, or scan anew into another lake."
            )
        return msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise DocumentError(
            f"{place}: its last scan cannot be read ({error}); scan anew into another lake."
        ) from None
