"""A live cluster, read: groups, brokers, the probe, the offsets topic."""

from rebal.inspectors.deferred import defer

_MESSAGES = ("kafka.protocol", "kafka.protocol.admin", "kafka.protocol.consumer")
for _package in ("kafka", "kafka.net", *_MESSAGES):
    defer(_package)
