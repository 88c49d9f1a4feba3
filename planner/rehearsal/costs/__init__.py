"""What each step of a plan costs: rebalances, downtime, duration."""
