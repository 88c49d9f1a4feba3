"""A live cluster, read: groups, brokers, the probe, the offsets topic."""

from rebal.inspectors.deferred import defer

for _package in ("kafka", "kafka.net", "kafka.protocol", "kafka.protocol.admin"):
    defer(_package)
