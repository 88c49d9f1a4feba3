"""The broker's request log."""
