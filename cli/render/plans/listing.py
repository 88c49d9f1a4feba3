"""The text of `rebal plan-upgrade --all`: verdict, group and path a line, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from rebal.cli.output import shown
from rebal.cli.render.common import Column, FittingTable, command_line, count, path_words, to_paste
from rebal.cli.render.plans.screen import VERDICT_STYLES
from rebal.planner.plan import Plan

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan_list_view(plans: Sequence[Plan], words: Sequence[str]) -> list[RenderableType]:
    """All plans, in the order given; `words` are added to the command that shows one of them."""
    if not plans:
        return [Text("no group was found.")]
    counts = Counter(str(plan.verdict) for plan in plans)
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    columns = [Column("VERDICT"), Column("GROUP"), Column("PATH"), Column("", rank=1)]
    rows = [_row(shown(plan)) for plan in plans]
    example = command_line(["rebal", "plan-upgrade", shown(plans[0].group_id), *words])
    return [
        Text(f"{count(len(plans), 'group')}: {said}"),
        Text(""),
        FittingTable(columns, rows),
        Text(""),
        Text("next: one of them, whole:", style="bold"),
        to_paste(example),
    ]


def _row(plan: Plan) -> tuple[Text, str, str, str]:
    verdict = Text(str(plan.verdict), style=VERDICT_STYLES[plan.verdict])
    return verdict, plan.group_id, path_words(plan.path), plan.summary
