"""Rules, one module a hazard: `evaluate` returns their findings on a group."""

from rebal.planner.rules.registry import (
    DuplicateRuleError,
    Rule,
    Trait,
    evaluate,
    has,
    rule,
    rules,
)

__all__ = [
    "DuplicateRuleError",
    "Rule",
    "Trait",
    "evaluate",
    "has",
    "rule",
    "rules",
]
