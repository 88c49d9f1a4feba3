"""Observations bound to a group's members, each fact with its source."""
