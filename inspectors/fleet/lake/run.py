"""A scan that is being made in a lake, from its number to its row in `scans`.

    LAKE/<table>/<number>-<random>/*.parquet   what its tasks write, unknown to anybody
    one commit to each table, then one to scans

Whatever ends a scan too early (an error, Ctrl-C, SIGKILL, a lost machine), and whichever of these
steps it had come to: no row in `scans` names what it wrote, and the next scan's commits take it out
of the tables. Of two scans of one cluster the first commit decides, and the other ends with an
error.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Final

from msgspec.structs import replace

from rebal.inspectors.fleet.lake.place import PROBE, LakeError, LakePlace
from rebal.inspectors.fleet.lake.scans import LEAST, SCANS, Finished, Scans, clusters_of
from rebal.inspectors.fleet.lake.sweep import Known, find_files, find_log, remove
from rebal.inspectors.fleet.lake.table import (
    CHECKPOINT,
    DataFile,
    LakeTable,
    lost,
    token_of,
)
from rebal.inspectors.fleet.manifest import NOTHING, UNNAMED, Manifest, TableEntry
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.writer import FOLDERS, STORED, Target, TaskReport, columns_of

# Tables that are asked about or committed at a time, for a store takes its time to answer.
_AT_ONCE: Final = 8


class Run:
    """A scan that is being made. `previous` is the finished one that it goes on from.

    `found` are the scans that were finished when it began.

    From it on, scans of `retain` seconds are kept (None: the last two), as the last scan did unless
    it is given.
    """

    def __init__(
        self,
        place: LakePlace,
        cluster: str,
        number: int,
        found: Finished,
        *,
        full: bool,
        retain: float | None = None,
    ) -> None:
        self.place = place
        self.cluster = cluster
        self.number = number
        self.target = Target(place, token_of(cluster, number), number)
        self._found = found
        self._last = found.last()
        self.previous = NOTHING if full else self._last
        self.retain = self._last.retain if retain is None else retain

    def earlier(self, kind: str) -> tuple[DataFile, ...]:
        """Return the files of a kind that the scan before has, with their paths in the lake."""
        if not self.previous.run:
            return ()
        table = FOLDERS[kind]
        return tuple(
            one._replace(path=f"{table}/{one.path}")
            for one in self._of_last[table]
            if one.path.split("/")[-1].startswith(f"{kind}-")
        )

    def finish(self, manifest: Manifest, report: TaskReport) -> Manifest:
        """Commit each table, then the scan; return the manifest with the tables' versions.

        The files of the scan before stay, but for those that are gone by the tasks' `report`.

        Raises:
            LakeError: another scan of this cluster came first, or the store does not let it happen.
        """
        made = self._files(report)

        def commit(name: str) -> TableEntry:
            files = made[name]
            version = self._table(name).become(self.cluster, files, self.number)
            if version is None:
                raise lost(self.place, self.cluster)
            return TableEntry(rows=sum(one.rows for one in files), version=version)

        first, *others = STORED
        # Of two scans, the first table takes one; committing all at once, both could lose.
        entries = {first: commit(first)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            entries |= zip(others, pool.map(commit, others), strict=True)
        finished = replace(
            manifest,
            retain=self.retain,
            tables={name: entry for name, entry in entries.items() if name in TABLES},
            inputs={name: entry for name, entry in entries.items() if name not in TABLES},
        )
        scans = Scans(self.place)
        found = scans.finish(finished, self._found, self.target.token)
        self._sweep(found, {finished.run: made})
        return finished

    def _files(self, report: TaskReport) -> dict[str, list[DataFile]]:
        """Return all files of the finished scan by table, with their paths there."""
        found: dict[str, list[DataFile]] = {table: [] for table in STORED}
        for kind, table in FOLDERS.items():
            if table in found:
                kept = [one for one in self.earlier(kind) if one.path not in report.gone]
                found[table] += [
                    one._replace(path=one.path.removeprefix(f"{table}/"))
                    for one in (*kept, *sorted(report.made.get(kind, ())))
                ]
        return found

    def _sweep(self, found: Finished, known: Known) -> None:
        """Remove what no scan needs any more; where many are kept, only now and then."""
        if self._last.run:
            known = {**known, self._last.run: self._of_last}
        with contextlib.suppress(LakeError):
            if len(found.rows) <= LEAST or self.number % CHECKPOINT == 0:
                remove(self.place, find_files(self.place, found, self.number, known=known))
            if self.number % CHECKPOINT == 0:
                remove(self.place, find_log(self.place, {}))

    @cached_property
    def _of_last(self) -> Mapping[str, tuple[DataFile, ...]]:
        """The files of the cluster's last finished scan, by table."""
        entries = defaultdict(TableEntry, {**self._last.tables, **self._last.inputs})
        return {
            name: self._table(name).files(self.cluster, entries[name].version) for name in STORED
        }

    def _table(self, name: str) -> LakeTable:
        return LakeTable(self.place, name, columns_of(name))


def counted(before: Mapping[str, int] | None, now: Mapping[str, int]) -> dict[str, int]:
    """Two counts by name added up, sorted by name, without zeros."""
    return dict(sorted((Counter(before) + Counter(now)).items()))


def new_run(place: LakePlace, cluster: str, *, full: bool, retain: float | None = None) -> Run:
    """Return a scan to be filled and finished; unless `full`, it goes on from the cluster's last.

    Scans of `retain` seconds are kept (None: as the last scan did, at first the last two).

    Raises:
        LakeError: the place cannot be written to, or holds something else.
        DocumentError: the cluster's last scan there cannot be read.
    """
    check_place(place)
    place.probe(token_of(cluster, 0))
    scans = Scans(place)
    tables = [LakeTable(place, name, columns_of(name)) for name in STORED]
    last = scans.create(cluster)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        number = 1 + max(last, *pool.map(partial(LakeTable.create, cluster=cluster), tables))
    return Run(place, cluster, number, scans.of(cluster), full=full, retain=retain)


def find_cluster(place: LakePlace, named: str | None, told: str | None, *, whose: str) -> str:
    """Return the cluster that a scan of `whose` records is of.

    `told` is what the brokers or the files say; `named` is --cluster. Records that say nothing
    belong to `unnamed`, as long as the lake has no other cluster.

    Raises:
        LakeError: the two differ, or it would be a guess.
    """
    if named is not None and told is not None and named != told:
        raise LakeError(
            f"--cluster {named}: {whose} of the cluster {told}: leave the option out, or check "
            "which cluster was meant."
        )
    if named or told:
        return str(named or told)
    others = tuple(one for one in clusters_of(place) if one != UNNAMED)
    if others:
        raise LakeError(
            f"{place}: it has scans of {', '.join(others)}, and {whose} of a cluster that they do "
            "not name: say which with --cluster NAME."
        )
    return UNNAMED


def check_place(place: LakePlace) -> None:
    """Check that a folder is empty, not there yet, or a lake; that a store can be written to.

    Raises:
        LakeError: it is not so.
    """
    folder = place.folder
    if folder is None:
        place.probe(token_of("", 0))
        return
    if folder.is_file():
        raise LakeError(f"{place}: is a file; name a folder with --out.")
    # An earlier rebal had `_work`.
    known = {*STORED, SCANS, PROBE, "_work"}
    if folder.is_dir() and {path.name for path in folder.iterdir()} - known:
        raise LakeError(f"{place}: holds other files; name a new or an empty folder with --out.")
