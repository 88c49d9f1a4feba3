"""Kafka's own rules of consumer groups, pure: model, wire codecs, assignors, the vote."""
