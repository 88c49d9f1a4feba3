"""Rules about KIP-848 and the way back (RB4xx)."""
