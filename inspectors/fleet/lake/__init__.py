"""The lake: Delta tables at a URL, and the scans that are finished in it."""
