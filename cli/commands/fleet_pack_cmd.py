"""`rebal fleet pack`: the packages that Spark's executors need, as one archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from rebal.cli import output
from rebal.cli.errors import DONE, UsageError
from rebal.groups.commands import Command

# Spark tells the kind of an archive by these.
_ENDINGS: Final = (".tar.gz", ".tgz")


def command(
    out: Annotated[
        Path, typer.Argument(metavar="FILE.tar.gz", help="The archive; an old one is replaced.")
    ],
) -> int:
    """Pack the Python packages that a scan's executors need, for a cluster without them.

    The packages are those of this Python: the executors' Python needs the same minor version and
    the same kind of machine. rebal itself is not in it, as each scan sends its own code. The
    options that give the archive to a scan are printed.
    """
    if not out.name.endswith(_ENDINGS):
        raise UsageError(f"{out}: name a file that ends in .tar.gz, by which Spark unpacks it.")
    from rebal.cli.files import write_file
    from rebal.inspectors.fleet.packing import pack, platform, spark_settings

    write_file(out, pack)
    size = out.stat().st_size / 1_000_000
    words = [
        word
        for key, value in spark_settings(str(out)).items()
        for word in ("--spark-conf", f"{key}={value}")
    ]
    output.say(
        f"wrote {out}: {size:.0f} MB, for {platform()}. These options of the scan give it to the "
        "executors:",
        Command(*words),
    )
    return DONE
