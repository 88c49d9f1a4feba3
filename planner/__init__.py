"""Decisions, pure: plans, routes, rules, what-ifs."""
