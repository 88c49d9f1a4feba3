"""Facts as data: client families, versions, assignor names, each with its source."""
