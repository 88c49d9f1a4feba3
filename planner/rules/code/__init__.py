"""Rules about the application's own code (RB3xx)."""
