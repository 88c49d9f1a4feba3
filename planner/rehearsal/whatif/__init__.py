"""What an assignor would do to a captured group."""
