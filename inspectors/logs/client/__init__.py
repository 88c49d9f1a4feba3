"""Logs of Java clients: consumers, Kafka Streams programs and Connect workers."""
