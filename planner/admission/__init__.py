"""Admission of restarts by the coordinator, and the advice that follows from it."""
