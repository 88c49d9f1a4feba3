"""Offset commits, reduced to one row a partition."""
