"""A plan held against the live group: members, steps, gates, dangers, journal."""
