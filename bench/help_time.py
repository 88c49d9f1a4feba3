"""The help and the completion of rebal against a bare `import typer`: the price of starting.

The commands' work is imported when they run, not at the top of their modules: these rows show why.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.timing import Row, side_by_side, wall

LINES = ("rebal ", "rebal inspect --", "rebal explain RB1")
COMMANDS = ("inspect", "plan-upgrade", "verify", "simulate", "rehearse")


def rows() -> Iterator[Row]:
    rebal = str(Path(sys.executable).with_name("rebal"))
    completes = [["completion", "bash", "--complete", line] for line in LINES]
    for words in (["--help"], *([name, "--help"] for name in COMMANDS), *completes):
        yield side_by_side(
            f"rebal {' '.join(words)}",
            lambda words=words: wall([rebal, *words]),
            lambda: wall([sys.executable, "-c", "import typer"]),
            peer_name="python -c 'import typer'",
            limit=2.0,
            runs=15,
        )
