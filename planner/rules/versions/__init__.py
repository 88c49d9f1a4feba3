"""Rules about faults of client and broker versions (RB2xx)."""
