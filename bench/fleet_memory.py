"""Memory of a fleet scan, of 2 and of 20 million records: driver, Python workers and JVM apart.

The 20 million are ten weeks of the same groups: each file repeats the 2 million with later offsets
and times. Peaks are those that Linux keeps of each process; the JVM's heap has 512 MB in both.
A worker grows in its first tasks, and no more after: from the first quarter to the end of the large
scan it has 530 to 544 MB.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.fleet_bench import FULL, Figure
from rebal.inspectors.fleet.spark.tasks import run_daemon

WEEKS = 10
MOST = 1.4
_WEEK_US = 7 * 86_400 * 1_000_000
_SCAN = """
import sys, tempfile
from rebal.inspectors.fleet.job import ScanOrder, run_scan
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.spark.session import SparkSettings

with tempfile.TemporaryDirectory() as out:
    conf = (("spark.driver.memory", "512m"),)
    settings = SparkSettings(master="local[2]", conf=conf)
    order = ScanOrder(out=find_place(out), offsets=tuple(sys.argv[1:]), spark=settings)
    run_scan(order, say=lambda text: None)
"""


def rows() -> Iterator[Figure]:
    from bench.fleet_input import write_parquet

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / f"{week}.parquet" for week in range(WEEKS)]
        write_parquet(files[0], FULL)
        for week, file in enumerate(files[1:], start=1):
            _repeat(files[0], file, week)
        one, all_ = peaks(files[:1]), peaks(files)
    for part, megabytes in all_.items():
        yield Figure(
            f"{WEEKS * FULL:,} records take this many times the memory of {FULL:,}: {part}, "
            f"{one[part]} → {megabytes} MB",
            (megabytes / one[part],),
            "×",
            MOST,
        )


def peaks(files: Sequence[Path]) -> dict[str, int]:
    """Return the peak of the driver, of the largest Python worker and of the JVM, in megabytes."""
    scan = subprocess.Popen([sys.executable, "-c", _SCAN, *map(str, files)])
    found = {"driver": 0, "worker": 0, "JVM": 0}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for place in Path("/proc").glob("[0-9]*"):
                part = _part(place, scan.pid)
                if part is not None:
                    found[part] = max(found[part], _peak(place))

    watch = threading.Thread(target=look)
    watch.start()
    code = scan.wait()
    over.set()
    watch.join()
    if code:
        raise SystemExit(f"the scan of {len(files)} files ended with {code}")
    return found


def _part(place: Path, driver: int) -> str | None:
    try:
        words = (place / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if int(place.name) == driver:
        return "driver"
    if not {b"pyspark.daemon", run_daemon.__module__.encode(), b"pyspark-shell"} & set(words):
        return None
    return "JVM" if words[0].endswith(b"java") else "worker"


def _peak(place: Path) -> int:
    try:
        lines = (place / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


def _repeat(source: Path, target: Path, week: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as given:
        schema = given.schema_arrow
        added = {"offset": week * FULL, "timestamp": week * _WEEK_US}
        with pq.ParquetWriter(target, schema, compression="zstd") as made:
            for group in range(given.metadata.num_row_groups):
                rows_ = given.read_row_group(group)
                for name, more in added.items():
                    moved = pc.add(rows_[name].cast(pa.int64()), more).cast(schema.field(name).type)
                    rows_ = rows_.set_column(schema.get_field_index(name), name, moved)
                made.write_table(rows_)


if __name__ == "__main__":
    print(json.dumps(peaks([Path(word) for word in sys.argv[1:]])))
