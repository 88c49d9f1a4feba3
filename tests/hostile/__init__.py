"""Hostile runs of the command line: `python -m tests.hostile --runs 100000`."""
