"""Logs of clients that are not Java: librdkafka, franz-go, sarama, kafkajs, Python's and Ruby's."""
