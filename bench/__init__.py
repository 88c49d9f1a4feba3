"""Speed, as ratios against a peer in the same run: `make bench`. Never part of the tests."""
