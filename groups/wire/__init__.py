"""Codecs between Kafka's bytes and the model; strict and total."""
