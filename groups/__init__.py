"""Kafka's rules for consumer groups: group model, wire formats, assignors and the assignor vote."""

# The version in pyproject.toml: to read it from the installed metadata takes a command 8 ms.
VERSION = "0.1.0"
