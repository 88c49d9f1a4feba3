"""Rules, one module a hazard: `evaluate` says what they find of a group."""

from rebal.planner.rules.evaluation import evaluate
from rebal.planner.rules.registry import DuplicateRuleError, Rule, rule, rules

__all__ = ["DuplicateRuleError", "Rule", "evaluate", "rule", "rules"]
