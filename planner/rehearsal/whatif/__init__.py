"""Simulation of an assignor on a captured group."""
