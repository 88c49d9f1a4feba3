"""`rebal check`: consumer starts that two versions of a repository declare, and their effects."""
