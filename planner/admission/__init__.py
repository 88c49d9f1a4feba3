"""Admission of joins by the coordinator: its memory, and its answer in three values."""
