"""Rules, in modules by subject; `evaluate` returns the findings of all rules on a group."""

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
