"""Evidence: observations of a group, bound to its members, each fact with its source."""
