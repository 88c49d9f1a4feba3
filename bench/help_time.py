"""`rebal --help` against a bare `import typer`: the price of starting."""

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.timing import Row, side_by_side, wall


def rows() -> Iterator[Row]:
    rebal = str(Path(sys.executable).with_name("rebal"))
    yield side_by_side(
        "rebal --help",
        lambda: wall([rebal, "--help"]),
        lambda: wall([sys.executable, "-c", "import typer"]),
        peer_name="python -c 'import typer'",
        limit=2.0,
        runs=15,
    )
