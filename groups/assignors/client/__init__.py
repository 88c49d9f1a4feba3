"""Kafka's four client-side assignors."""
