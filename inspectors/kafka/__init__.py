"""A live cluster, read: groups, brokers, the probe, the offsets topic."""

from rebal.inspectors.deferred import defer

# confluent-kafka imports asyncio for its asynchronous clients, which rebal does not use either.
for _package in ("kafka", "kafka.net", "kafka.protocol", "kafka.protocol.admin", "asyncio"):
    defer(_package)
