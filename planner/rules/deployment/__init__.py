"""Rules about the deployment and its processes (RB6xx)."""
