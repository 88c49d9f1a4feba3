"""Delta tables of a lake: which files a cluster has in a table, and the rows of a file.

`commit_files` commits the difference between the wanted files and those in the table, whatever a
failed or overtaken scan left behind. So a reader of a finished scan, which has the version of each
table, sees only that scan's files.

The rows of a file are sorted by group. Arrow's row group statistics show which row groups may hold
a wanted row; the others are not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.lake.place import LakeError, LakePlace
from rebal.inspectors.fleet.schemas import SCAN, in_columns

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_T = TypeVar("_T")
CLUSTER: Final = "cluster_id"
SMALL: Final = 128 << 20
"""The size in bytes below which a file is small; larger files are not merged."""
MOST: Final = 8
"""The largest number of small files of one kind and size class that are not merged."""
_TIER: Final = 4
_RETRIES: Final = 30
# Between two tries, in seconds: up to so much for each that has failed, and up to ten times it.
_PAUSE: Final = 0.1
CHECKPOINT: Final = 10
"""The number of commits between two Delta checkpoints: a reader reads no more log entries."""
_ROWS: Final = 4096
# Rows of a batch, and of one with large values: a run may have a megabyte.
_FEW: Final = 64


class DataFile(NamedTuple):
    """A Parquet file of a table; `path` is relative to the table, `size` in bytes.

    `low` and `high` are the least and the greatest group id in its rows (None: not known).
    """

    path: str
    rows: int
    size: int
    low: str | None = None
    high: str | None = None


class LakeTable:
    """The Delta table `name` of a lake; its columns are `cluster_id` and those of `schema`."""

    def __init__(self, place: LakePlace, name: str, schema: pa.Schema) -> None:
        self._place, self._name = place, name
        self._schema = pa.schema([pa.field(CLUSTER, pa.string()), *schema])

    def create(self, cluster: str) -> int:
        """Create the table if it does not exist, or add its missing columns.

        Returns the number of the cluster's last scan that committed to it, 0 if none did.

        Raises:
            LakeError: the store does not let it happen, or the table there is not rebal's.
        """
        return self._commit(self._create).transaction_version(_app_of(cluster)) or 0

    def _create(self) -> DeltaTable:
        from deltalake import DeltaTable, Schema

        url, options = self._place.table(self._name), dict(self._place.options)
        if not DeltaTable.is_deltatable(url, options):
            return DeltaTable.create(
                url,
                Schema.from_arrow(self._schema),
                mode="ignore",
                partition_by=[CLUSTER],
                configuration={
                    "delta.enableDeletionVectors": "false",
                    "delta.logRetentionDuration": "interval 3650 days",
                },
                storage_options=options,
            )
        table = self._open(None)
        if table.metadata().partition_columns != [CLUSTER]:
            raise LakeError(
                f"{self._place}: the table {self._name} there is another than rebal's: name "
                "another place with --out."
            )
        known = {column.name for column in table.schema().fields}
        fresh = [one for one in Schema.from_arrow(self._schema).fields if one.name not in known]
        if fresh:
            table.alter.add_columns(fresh)
        return table

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters that have files in the table, sorted."""
        with self._place.errors():
            return tuple(sorted({row[CLUSTER] for row in self._open(None).partitions()}))

    def files(self, cluster: str, version: int | None = None) -> tuple[DataFile, ...]:
        """Return the cluster's files in a version of the table (None: the newest), sorted by path.

        Raises:
            LakeError: the version is not there any more.
        """
        with self._place.errors():
            return _files(self._open(version), cluster)

    def commit_files(
        self,
        cluster: str,
        files: Iterable[DataFile],
        number: int | None,
        *,
        instead_of: tuple[DataFile, ...] | None = None,
    ) -> int | None:
        """Make `files` the cluster's only files in the table; return the version.

        `number` is the number of the scan that commits (None: it is not a scan). If a scan of the
        cluster with this or a later number has committed to the table, or if the cluster's files
        are not `instead_of` any more (None: not compared), nothing is committed and the result is
        None. It is None, too, if another commit has changed the cluster's files after this one.

        Raises:
            LakeError: the store does not let it happen.
        """
        wanted = tuple(sorted(files))
        return self._commit(lambda: self._commit_files(cluster, wanted, number, instead_of))

    def _commit_files(
        self,
        cluster: str,
        wanted: tuple[DataFile, ...],
        number: int | None,
        instead_of: tuple[DataFile, ...] | None,
    ) -> int | None:
        from deltalake import CommitProperties, Transaction

        table, app = self._open(None), _app_of(cluster)
        if number is not None and (table.transaction_version(app) or 0) >= number:
            return None
        have = _files(table, cluster)
        if instead_of is not None and have != instead_of:
            return None
        table.create_write_transaction(
            _changes(have, wanted, cluster),
            "append",
            table.schema(),
            [CLUSTER],
            commit_properties=CommitProperties(
                app_transactions=[] if number is None else [Transaction(app, number)],
                max_commit_retries=10,
            ),
        )
        table = self._open(None)
        if table.version() % CHECKPOINT == 0:
            table.create_checkpoint()
        return table.version() if _files(table, cluster) == wanted else None

    def _commit(self, made: Callable[[], _T]) -> _T:
        """Return the result of `made`, which reads the table and commits a change.

        It is called again if another commit, perhaps of another cluster, came first.

        Raises:
            LakeError: another commit came first each time, or the table rejects the commit.
        """
        from deltalake.exceptions import CommitFailedError

        with self._place.errors():
            for failed in range(_RETRIES):
                with contextlib.suppress(CommitFailedError):
                    return made()
                time.sleep(random.uniform(0, _PAUSE * min(failed + 1, 10)))
            return made()

    def _open(self, version: int | None) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(
            self._place.table(self._name),
            version=version,
            storage_options=dict(self._place.options),
        )


def _files(table: DeltaTable, cluster: str) -> tuple[DataFile, ...]:
    # Not with pa.table, which imports pandas.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    return tuple(
        sorted(
            DataFile(
                path=row["path"],
                rows=row["num_records"],
                size=row["size_bytes"],
                low=row.get("min.group_id"),
                high=row.get("max.group_id"),
            )
            for row in actions.to_pylist()
            if row[f"partition.{CLUSTER}"] == cluster
        )
    )


def _changes(
    have: Sequence[DataFile], wanted: Sequence[DataFile], cluster: str
) -> list[RemoveAction | AddAction]:
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    paths, kept = {one.path for one in have}, {one.path for one in wanted}
    removed = [
        RemoveAction(one.path, True, now, one.size, {CLUSTER: cluster})
        for one in have
        if one.path not in kept
    ]
    added = [
        AddAction(one.path, one.size, {CLUSTER: cluster}, now, True, json.dumps(_statistics(one)))
        for one in wanted
        if one.path not in paths
    ]
    return [*removed, *added]


def _statistics(file: DataFile) -> Mapping[str, Any]:
    bounds = {"minValues": {"group_id": file.low}, "maxValues": {"group_id": file.high}}
    return {"numRecords": file.rows, **(bounds if file.low is not None else {})}


def find_small(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """Return the small files that should be merged.

    They are files below `SMALL` bytes, in each size class that has more than `MOST` files.
    """
    tiers: dict[int, list[DataFile]] = {}
    for one in files:
        if one.size < SMALL:
            tiers.setdefault(max(0, one.size.bit_length() - 12) // _TIER, []).append(one)
    return tuple(one for found in tiers.values() if len(found) > MOST for one in found)


def _app_of(cluster: str) -> str:
    return f"rebal/{cluster}"


def token_of(cluster: str, number: int) -> str:
    """Return a new unique name for the files of the cluster's scan with this number."""
    return f"{_prefix(cluster)}{number:08d}-{uuid.uuid4().hex[:8]}"


def number_of(token: str, cluster: str) -> int | None:
    """Return the scan number in a name from `token_of`; None: it is no name of this cluster."""
    digits = token.removeprefix(_prefix(cluster)).split("-")[0]
    return int(digits) if token.startswith(_prefix(cluster)) and digits.isdigit() else None


def _prefix(cluster: str) -> str:
    return f"{hashlib.sha256(cluster.encode()).hexdigest()[:16]}-"


def lost(place: LakePlace, cluster: str) -> LakeError:
    """Return the error for a scan that another scan of the same cluster overtook."""
    return LakeError(
        f"{place}: another scan of the cluster {cluster} was writing there and came first; nothing "
        "of this one is in the tables: scan again when the other has ended."
    )


def read_rows(
    place: LakePlace, path: str, columns: pa.Schema, wanted: pc.Expression | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a lake file that meet `wanted` (None: all), in these columns.

    A column that the file lacks is null. `wanted` may also use the column `scan_id`.

    Raises:
        LakeError: the store does not return the file.
    """
    at_once = _ROWS if {"rows", "document"}.isdisjoint(columns.names) else _FEW
    with place.errors():
        if wanted is None:
            with place.files().open_input_file(path) as opened:
                for batch in pq.ParquetFile(opened).iter_batches(at_once, columns=columns.names):
                    yield in_columns(batch, columns)
            return
        # It loads pandas, which readers of whole tables do without.
        from pyarrow.dataset import ParquetFileFormat

        file = ParquetFileFormat().make_fragment(path, filesystem=place.files())
        for batch in file.to_batches(
            schema=pa.unify_schemas([columns, pa.schema([SCAN])]),
            filter=wanted,
            batch_size=at_once,
            use_threads=False,
        ):
            if len(batch):
                yield in_columns(batch, columns)


def of_groups(groups: pa.Array) -> pc.Expression:
    """Return the condition for rows of these groups."""
    return pc.field("group_id").isin(groups)


def may_hold(low: str | None, high: str | None, names: Sequence[str]) -> bool:
    """Return whether a file with group ids from `low` to `high` may hold one of the sorted `names`.

    `low` and `high` are None if they are not known; the file may then hold any.
    """
    if low is None or high is None:
        return bool(names)
    place = bisect_left(names, low)
    return place < len(names) and names[place] <= high
