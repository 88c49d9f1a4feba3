"""Logs of Kafka clients and of brokers, read as observations of group members."""
