"""Readers: each returns a GroupSnapshot or observations for rebal.groups.evidence; none writes."""
