"""Verification of a plan on the live group: members, gates, dangers and the journal."""
