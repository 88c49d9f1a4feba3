"""A scan's tables, read back with pyarrow and delta-rs alone: `open_tables` finds the last scan.

Only the files that the scan's own versions of the tables name are read, so a scan that was stopped
half-way, or is under way, is never seen. Columns that this version does not know are left alone;
columns that an older version did not write are null.

`rows_of` and `by_group` give columns as Python values. Equal lists of texts, and equal lists of
partition numbers, are made once. Times stay microseconds since 1970: `clock.moment` makes one of
them a datetime.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rebal.groups.compact import Partitions
from rebal.groups.errors import RebalError
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace, find_place
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest, TableEntry

if TYPE_CHECKING:
    import pyarrow as pa

    from rebal.inspectors.fleet.lake.scans import Finished

_SCAN: Final = "rebal fleet scan --out"
_Row = TypeVar("_Row")
Row = dict[str, Any]
"""A row's values by the names of its columns."""
_partitions: Final = lru_cache(maxsize=16_384)(Partitions)


class TablesError(RebalError):
    """A place that holds no finished scan that this version can read; says what to do."""


class Tables:
    """The tables of one finished scan; `manifest` says what it read, and when.

    `place` is their lake; `scans` are the numbers of all its cluster's scans that can still be
    read, the last one last.
    """

    def __init__(self, place: LakePlace, finished: Finished, number: int) -> None:
        self.place = place
        self._finished = finished
        self.manifest: Manifest = finished.load(number)
        self.scans = tuple(row.number for row in finished.rows)

    def of_scan(self, number: int) -> Tables:
        """Return the tables of another scan of the cluster.

        Raises:
            TablesError: it was never finished, or was removed.
            DocumentError: a version wrote it that this one does not read.
        """
        if number in self.scans:
            return Tables(self.place, self._finished, number)
        cluster = self.manifest.cluster
        of = f" of the cluster {cluster}" if cluster != UNNAMED else ""
        first, last = self.scans[0], self.scans[-1]
        known = f"scan {last}" if first == last else f"scans {first} to {last}"
        raise TablesError(
            f"{self.place}: scan {number}{of} was removed or never finished; {known} can be read."
        )

    @property
    def name(self) -> str:
        """Its lake and cluster, as LAKE#CLUSTER."""
        return f"{self.place}#{self.manifest.cluster}"

    def read(self, name: str, columns: Sequence[str], group: str | None = None) -> pa.Table:
        """Return these columns of the table `name`, of one `group` or of all, in the order written.

        For one group, `group_id` is among the columns.

        Raises:
            TablesError: a file of the scan is missing, cut off, or no Parquet file.
        """
        import pyarrow as pa

        from rebal.inspectors.fleet.lake.table import LakeTable, may_hold, of_groups, read_rows
        from rebal.inspectors.fleet.schemas import TABLES

        schema = pa.schema([TABLES[name].field(column) for column in columns])
        entry = self.manifest.tables.get(name, TableEntry())
        wanted = None if group is None else of_groups(pa.array([group], pa.string()))
        parts: list[pa.Table] = []
        path = name
        try:
            table = LakeTable(self.place, name, TABLES[name])
            for one in table.files(self.manifest.cluster, entry.version):
                path = f"{name}/{one.path}"
                if group is None or may_hold(one.low, one.high, [group]):
                    found = list(read_rows(self.place, path, schema, wanted))
                    if group is None and (count := sum(map(len, found))) != one.rows:
                        raise LakeError(f"it has {count} rows, not {one.rows}")
                    parts += found
        except LakeError as error:
            raise TablesError(
                f"{self.place}: {path} cannot be read ({str(error).rstrip('.')}): run the command "
                f"again if a scan ended just now, else scan again: {_SCAN} {self.place}."
            ) from None
        return pa.concat_tables(parts) if parts else schema.empty_table()


def open_tables(text: str, options: Mapping[str, str] | None = None) -> Tables:
    """Return a lake's last finished scan: of its one cluster, or of the one in LAKE#CLUSTER.

    `options` are those of the lake's store that are not in the environment.

    Raises:
        TablesError: there is none.
        DocumentError: it cannot be read, or was written by a version that this one does not read.
    """
    return open_clusters(text, options, one=True)[0]


def open_clusters(
    text: str, options: Mapping[str, str] | None = None, *, one: bool = False
) -> tuple[Tables, ...]:
    """Return the last finished scan of each cluster of a lake, or of the one in LAKE#CLUSTER.

    `one` is whether that must be a single cluster.

    Raises:
        TablesError: there is none.
        DocumentError: one cannot be read, or was written by a version that this one does not read.
    """
    if find_spec("pyarrow") is None or find_spec("deltalake") is None:
        raise TablesError(
            "a scan's tables are read with pyarrow and deltalake: pip install 'rebal[lake]'."
        )
    from rebal.inspectors.fleet.lake.scans import Scans, choose_cluster, is_lake

    place, cluster = _named(text, options)
    if place.folder is not None and not place.folder.is_dir():
        what = "is a file, not a folder" if place.folder.exists() else "there is no such folder"
        raise TablesError(f"{text}: {what}; name the folder that a scan wrote: {_SCAN} DIR.")
    if not is_lake(place):
        raise TablesError(
            f"{text}: no scan wrote it (it has no table `scans`); write one: {_SCAN} {place}."
        )
    scans = Scans(place)
    found = scans.clusters()
    if not found:
        raise TablesError(f"{text}: no scan in it was finished; scan again: {_SCAN} {place}.")
    if one or cluster is not None:
        found = (choose_cluster(place, found, cluster),)
    return tuple(
        Tables(place, last, last.rows[-1].number) for last in (scans.of(name) for name in found)
    )


def _named(text: str, options: Mapping[str, str] | None) -> tuple[LakePlace, str | None]:
    before, sign, after = text.rpartition("#")
    if not sign or os.path.exists(text):
        return find_place(text, options), None
    return find_place(before, options), after


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `table`, each a tuple in the order of its columns.

    Lists of texts are tuples, partition lists dicts of topic → `Partitions`, times microseconds.
    """
    return zip(*(values(column) for column in table.columns), strict=True)


def named_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of `table`, with the values that `rows_of` gives."""
    for values in rows_of(table):
        yield dict(zip(table.column_names, values, strict=True))


def by_group(table: pa.Table, kind: Callable[..., _Row]) -> defaultdict[str, list[_Row]]:
    """Return the rows of `table`, each as this `kind` made of its columns, by their group."""
    made: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in named_rows(table):
        made[row["group_id"]].append(kind(**row))
    return made


def values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return one column's values; null is None."""
    from rebal.inspectors.fleet.schemas import PARTITIONS, TEXTS, values_of

    found = values_of(column)
    if column.type == TEXTS:
        texts = [None if one is None else tuple(one) for one in found]
        same = {one: one for one in texts}
        return [same[one] for one in texts]
    if column.type == PARTITIONS:
        return [None if one is None else dict(map(_of_topic, one)) for one in found]
    return found


def _of_topic(one: Row) -> tuple[str, Partitions]:
    return one["topic"], _partitions(tuple(one["partitions"] or ()))
