"""Codecs between Kafka's wire formats and the model; malformed bytes raise `WireError`."""
