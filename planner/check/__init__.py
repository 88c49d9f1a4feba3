"""`rebal check`: the next starts that two versions of a repository declare, and what they do."""
