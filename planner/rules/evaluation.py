"""All rules over one group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from rebal.groups.model import GroupSnapshot, Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import rules

_ORDER: Final = (Severity.BLOCK, Severity.WARN, Severity.ASK)


def evaluate(
    group: GroupSnapshot | Context, *, ignore: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """What the rules say about `group`, the gravest first; rules that do not fire say nothing.

    A snapshot is judged as it stands, with no plan in mind (`rebal inspect`); a `Context` made
    with `planning` also gets what matters only to the steps of its plan. `ignore` is rule id →
    reason: such findings stay, marked, and count for nothing.
    """
    context = group if isinstance(group, Context) else Context(group)
    found = [finding for rule in rules().values() for finding in rule.check(context)]
    if ignore:
        found = [
            msgspec.structs.replace(finding, ignored=ignore[finding.rule])
            if finding.rule in ignore
            else finding
            for finding in found
        ]
    return tuple(sorted(found, key=_rank))


def _rank(finding: Finding) -> tuple[bool, int, bool, str]:
    return (
        finding.ignored is not None,
        _ORDER.index(finding.severity),
        finding.result is not Tri.YES,
        finding.rule,
    )
