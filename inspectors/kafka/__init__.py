"""A live cluster, read: groups, brokers, the probe, the offsets topic."""
