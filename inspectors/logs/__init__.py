"""Logs of clients and brokers, read as observations."""
