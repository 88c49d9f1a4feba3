"""Pictures of screens for the README: `make pictures` writes docs/*.svg from real output.

The groups are those of `rebal demo`. Each picture is made for a light and for a dark page.
"""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI
from rich.text import Text

from rebal.cli import output
from rebal.cli.files import read_snapshot
from rebal.cli.output import View
from rebal.cli.render.inspection.screen import inspect_view
from rebal.cli.render.plans.screen import plan_view
from rebal.cli.render.verification import verify_view
from rebal.cli.report import make_report
from rebal.groups.commands import Command
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.verification.verify import verify

ROOT: Final = Path(__file__).parents[1]
THEMES: Final = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}
_GROUPS: Final = ROOT / "cli" / "data" / "demo"
_PLAN: Final = "checkout.plan.yaml"


def pictures() -> dict[str, str]:
    """Return file name → SVG, equal at each run."""
    given = Given(connection=("-b", "kafka-1:9092"), evidence=("--probe",), plan=_PLAN)
    shipping = read_snapshot(_GROUPS / "shipping.rebal.yaml")
    checkout = read_snapshot(_GROUPS / "checkout.rebal.yaml")
    plan = make_plan(checkout, given=given)
    screens: dict[str, tuple[int, str, View]] = {
        "inspect": (
            110,
            "rebal inspect checkout -b kafka-1:9092 --probe",
            inspect_view(
                output.shown(make_report(checkout)),
                Command("rebal", "plan-upgrade", "checkout", "-b", "kafka-1:9092", "--probe"),
            ),
        ),
        "plan-upgrade": (
            152,
            "rebal plan-upgrade shipping -b kafka-1:9092 --probe",
            plan_view(make_plan(shipping, given=Given(connection=given.connection))),
        ),
        "verify": (
            110,
            f"rebal verify {_PLAN} -b kafka-1:9092 --probe",
            verify_view(verify(plan, [], checkout)),
        ),
    }
    return {
        f"{name}-{theme}.svg": _svg(f"{name}-{theme}", *screen, theme)
        for name, screen in screens.items()
        for theme in THEMES
    }


def _svg(name: str, width: int, typed: str, view: View, theme: str) -> str:
    console = Console(
        record=True,
        file=StringIO(),
        width=width,
        color_system="standard",
        force_terminal=True,
        legacy_windows=False,
    )
    console.print(Text(f"$ {typed}\n"))
    console.print(Text.from_ansi(output.render(view, width=width, colour=True)), soft_wrap=True)
    made = console.export_svg(title="rebal", theme=THEMES[theme], unique_id=f"rebal-{name}")
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def main(folder: Path) -> None:
    """Write each picture into `folder`."""
    folder.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (folder / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
