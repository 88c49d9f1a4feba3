"""Scans that go on from the one before: which groups, from what, and what is written again."""
