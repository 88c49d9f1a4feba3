"""One description of how to reach a cluster, for both Kafka clients."""
