"""Roll-outs and assignors computed offline: costs and what-ifs."""
