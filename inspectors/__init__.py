"""Readers of brokers, logs and files: they return snapshots and observations, decide nothing."""
