"""Spark for a scan: its session, its tasks, and the explanation of its errors."""
