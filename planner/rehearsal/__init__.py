"""Offline rehearsals of roll-outs, costs of plan steps, and what-if simulations of assignors."""
