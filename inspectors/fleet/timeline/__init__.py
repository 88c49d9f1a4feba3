"""One pass over all groups' records and requests, to the tables' rows."""
