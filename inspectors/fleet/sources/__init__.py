"""The sources of a scan's records and request lines."""
