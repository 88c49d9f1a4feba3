"""Spark: how a scan starts it or finds it running, what its tasks are, and what it says."""
