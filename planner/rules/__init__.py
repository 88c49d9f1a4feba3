"""Rules, one module a hazard: `evaluate` returns their findings on a group."""

from rebal.planner.rules.registry import (
    Rule,
    Trait,
    evaluate,
    has,
    rule,
    rules,
)

__all__ = [
    "Rule",
    "Trait",
    "evaluate",
    "has",
    "rule",
    "rules",
]
