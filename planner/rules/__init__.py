"""Rules, one module a hazard: `evaluate` returns their findings on a group."""

from rebal.planner.rules.registry import (
    DuplicateRuleError,
    Risk,
    Rule,
    Trait,
    evaluate,
    has,
    own_class_risk,
    rule,
    rules,
)

__all__ = [
    "DuplicateRuleError",
    "Risk",
    "Rule",
    "Trait",
    "evaluate",
    "has",
    "own_class_risk",
    "rule",
    "rules",
]
