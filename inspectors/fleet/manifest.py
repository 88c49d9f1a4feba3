"""Manifest of a finished scan: its tables, its sources, and where the next scan goes on.

A scan's row of the lake's table `scans` carries it as a document.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from rebal.groups.errors import DocumentError
from rebal.groups.model import Record
from rebal.inspectors.kafka.brokers import ClusterReading

SCHEMA: Final = "rebal.fleet-scan/8"
UNNAMED: Final = "unnamed"
"""The cluster of records that say of none, where the operator named none."""


class TableEntry(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A table's rows of this cluster, and the version of the table that holds them."""

    rows: int = 0
    version: int = 0


class ReadLog(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A request log that was read up to the byte `until`, the end of a line.

    It is known again, whatever its name, by the SHA-256 of its first bytes; a packed file by those
    of the file, with its size as `until`, and by those of its text.
    """

    digest: str
    until: int


class Manifest(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One scan. Counts of records are of the whole history in the tables, earlier scans included.

    `cluster` is the id that the brokers say, or the name that `--cluster` gave; `run` is the scan's
    number among those of its cluster, and `scan_id` in the tables. `read` is the number of records
    that the sources gave; `records` says what became of them, by Kafka's own name of the kind of
    record, and its numbers add up to `read`. `skipped` are what a source holds beside records
    (control batches, a segment's cut-off end), in the last scan alone; `requests` are the lines of
    the request logs by what they were. `offsets` is the last offset read by partition of
    `__consumer_offsets`; `breaks` are those up to which an earlier scan read and after which the
    next found some missing: the log cleaner came between, and what it took away was never read.
    `topics` are topics' names by their ids, as commits of Kafka 4.1 and later tell them.
    `log_ahead_ms` is how far the logs' clock was found to be ahead of UTC where they name no zone,
    `logs` are the request logs that were read, so that the next scan reads only what they have
    grown by. `sources` are brokers, files and logs as they were named. `observed_from` and
    `observed_until` bound the times of what was read. `brokers` is what the last scan of a live
    cluster read beside records, but for the log end offsets, which are a table. `retain` is how
    long scans are kept, in seconds (None: the last two). `tables` are those for readers, `inputs`
    what the next scan needs.
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


NOTHING: Final = Manifest(run=0, finished_at=datetime(1970, 1, 1, tzinfo=UTC))
"""What the first scan of a cluster goes on from."""


def load_manifest(text: str, place: str) -> Manifest:
    """Return the manifest of a scan in the lake `place`.

    Raises:
        DocumentError: it is damaged, or of another version.
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
