"""Discrete-event model of a consumer group: coordinator, members, ownership of partitions."""
