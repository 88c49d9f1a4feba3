"""Rules about Kafka Streams and Kafka Connect (RB5xx)."""
