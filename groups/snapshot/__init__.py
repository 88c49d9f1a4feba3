"""Snapshot documents and the compact texts in them."""
