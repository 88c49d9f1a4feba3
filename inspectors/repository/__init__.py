"""Versions of a repository: the files of a folder, and of a git revision."""
