"""Advice to the operator on the next action, as data and as text."""
