"""A scan's tables, read back without Spark."""
