"""A live cluster, read: groups, brokers, the probe, the offsets topic."""

from rebal.inspectors.deferred import defer

# confluent-kafka imports asyncio for its asynchronous clients, which rebal does not use either.
_MESSAGES = ("kafka.protocol", "kafka.protocol.admin", "kafka.protocol.consumer")
for _package in ("kafka", "kafka.net", *_MESSAGES, "asyncio"):
    defer(_package)
