"""Intake of what a scan reads: each record and line once, reduced, stored and accounted for."""
