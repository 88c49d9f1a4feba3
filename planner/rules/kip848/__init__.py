"""Rules about KIP-848 and the path back (RB4xx)."""
