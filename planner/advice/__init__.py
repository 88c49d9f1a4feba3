"""Advice to people: the admission's answer as data, and its words."""
