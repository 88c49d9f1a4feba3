"""Where a scan's records and request lines come from."""
