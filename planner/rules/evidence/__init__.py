"""Rules about the evidence itself (RB9xx)."""
