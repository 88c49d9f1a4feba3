"""The members' own logs."""
