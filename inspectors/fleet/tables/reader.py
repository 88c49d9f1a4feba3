"""A scan's tables, read back with pyarrow alone: `open_tables` finds the last finished run.

A scan writes `DIR/runs/<n>/<table>/part-*.parquet` and `manifest.json`, and then points
`DIR/current` at the run: only what the manifest names is read, so that a run that was stopped
half-way is never taken for a whole one. Columns that this version does not know are left alone;
columns that an older version did not write are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rebal.groups.errors import RebalError
from rebal.inspectors.fleet.manifest import CURRENT, MANIFEST, Manifest, TableEntry, read_manifest

if TYPE_CHECKING:
    import pyarrow as pa

_SCAN: Final = "rebal fleet scan --out"


class TablesError(RebalError):
    """A folder that holds no finished scan that this version can read; says what to do."""


class Tables:
    """The tables of one finished scan; `manifest` says what it read, and when."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        # Not by way of `current`: a scan that ends meanwhile points it at another run.
        self._run = folder / "runs" / str(manifest.run)

    def read(self, name: str, columns: Sequence[str], group: str | None = None) -> pa.Table:
        """These columns of the table `name`, of one `group` or of all, in the order written.

        Raises:
            TablesError: a file of the run is missing, cut off, or no Parquet file.
        """
        import pyarrow as pa

        from rebal.inspectors.fleet.schemas import TABLES

        schema = pa.schema([TABLES[name].field(column) for column in columns])
        entry = self.manifest.tables.get(name, TableEntry())
        parts = [
            self._part(self._run / each.path, each.rows, schema, group) for each in entry.files
        ]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _part(self, path: Path, rows: int, schema: pa.Schema, group: str | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
            if file.metadata.num_rows != rows:
                raise self._broken(path, f"has {file.metadata.num_rows} rows, not {rows}")
            known = [name for name in schema.names if name in file.schema_arrow.names]
            wanted = known if group is None else list({*known, "group_id"})
            chosen = _row_groups(file.metadata, group)
            found = file.read_row_groups(chosen, columns=wanted)
            if group is not None:
                import pyarrow.compute as pc

                found = found.filter(pc.equal(found["group_id"], group))
            for name in set(schema.names) - set(known):
                found = found.append_column(name, pa.nulls(len(found), schema.field(name).type))
            return found.select(schema.names).cast(schema)
        except FileNotFoundError:
            raise self._broken(path, "is missing") from None
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self._broken(path, f"cannot be read ({said})") from None

    def _broken(self, path: Path, what: str) -> TablesError:
        return TablesError(
            f"{self.folder}: {path.relative_to(self._run)} {what}: run the command again if a scan "
            f"ended just now, else scan again: {_SCAN} {self.folder}."
        )


def open_tables(folder: Path) -> Tables:
    """The last finished scan in `folder`.

    Raises:
        TablesError: there is none.
        DocumentError: its manifest is damaged, or of a version that this rebal does not read.
    """
    if find_spec("pyarrow") is None:
        raise TablesError("a scan's tables are read with pyarrow: pip install 'rebal[fleet]'.")
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise TablesError(f"{folder}: {what}; name the folder that a scan wrote: {_SCAN} DIR.")
    if not (folder / CURRENT / MANIFEST).exists():
        raise TablesError(f"{folder}: {_why_none(folder)}")
    return Tables(folder, read_manifest(folder))


def _why_none(folder: Path) -> str:
    if (folder / "runs").is_dir():
        return f"no scan in it was finished; scan again: {_SCAN} {folder}."
    if (folder / MANIFEST).is_file() and folder.parent.name == "runs":
        return f"is one run of a scan; name the scan's own folder: {folder.parent.parent}."
    return f"no scan wrote it (it has no {CURRENT}/{MANIFEST}); write one: {_SCAN} DIR."


def _row_groups(metadata: Any, group: str | None) -> list[int]:
    """Those whose range of group ids includes `group`; all where the file does not say."""
    every = range(metadata.num_row_groups)
    if group is None:
        return list(every)
    return [number for number in every if _may_hold(metadata.row_group(number), group)]


def _may_hold(row_group: Any, group: str) -> bool:
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        if column.path_in_schema == "group_id":
            found = column.statistics
            if found is None or not found.has_min_max:
                return True
            return bool(found.min <= group <= found.max)
    return True
