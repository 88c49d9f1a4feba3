"""Kafka's own rules of consumer groups, pure: model, wire codecs, assignors, the vote."""

# The version in pyproject.toml: to read it from the installed metadata takes a command 8 ms.
VERSION = "0.1.0"
