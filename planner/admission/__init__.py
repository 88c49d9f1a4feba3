"""Whether the coordinator admits a restart, and the advice that follows from it."""
