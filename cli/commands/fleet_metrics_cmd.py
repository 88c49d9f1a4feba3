"""`rebal fleet metrics`: a scan's groups as metrics for Prometheus."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, refuse
from rebal.groups.errors import RebalError


def command(
    lake: Annotated[
        str,
        typer.Argument(metavar="LAKE", help="What rebal fleet scan wrote; LAKE#CLUSTER for one."),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.prom", help="A file for node_exporter's textfile collector."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve them over HTTP; without HOST on loopback only."
        ),
    ] = None,
    match: Annotated[
        str | None, typer.Option(metavar="REGEX", help="The groups whose whole name matches.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(metavar="GOAL", help="cooperative, eager, consumer, or an assignor's name."),
    ] = "cooperative",
    lake_option: params.LakeOption = None,
) -> int:
    """Print metrics of a scan's groups for Prometheus: rebalances, downtime, readiness, lag.

    The metrics are those of each cluster's last finished scan. Without an option they are printed
    in the OpenMetrics format. --out writes a file atomically, in Prometheus's text format:
    node_exporter reads no other. --listen serves them until Ctrl-C, and reads the lake again when a
    new scan is finished. The verdicts are those of fleet report; the exit code is 0 whatever they
    are.
    """
    refuse(
        {
            "--out writes a file and --listen serves: give one of them.": (
                out is not None and listen is not None
            ),
            f"--out {out}: node_exporter reads only files whose names end in .prom.": (
                out is not None and out.suffix != ".prom"
            ),
        }
    )
    if find_spec("prometheus_client") is None:
        raise RebalError("metrics need prometheus-client: pip install 'rebal[lake]'.")
    from rebal.cli.metrics import LakeMetrics

    metrics = LakeMetrics(params.Lake(lake, params.lake_options(lake_option)), match=match, to=to)
    if listen is not None:
        metrics.serve(listen)
    metrics.require_groups()
    if out is None:
        output.write(metrics.text("openmetrics"))
    else:
        from rebal.cli.files import write_text

        write_text(out, metrics.text("prometheus"))
        output.say(f"wrote {out}")
    return DONE
