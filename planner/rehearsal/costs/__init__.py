"""Costs of a plan's steps: rebalances, downtime, duration."""
