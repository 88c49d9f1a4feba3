"""The partition assignors, with exactly the Java client's results."""
