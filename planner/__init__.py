"""Decisions, pure: plans, paths, rules, admission, verification, rehearsal."""
