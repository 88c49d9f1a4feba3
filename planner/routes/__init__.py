"""One module for each way from one rebalance protocol to another."""
