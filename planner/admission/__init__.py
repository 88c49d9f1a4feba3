"""Prediction of the coordinator's answer to a join, from the assignor lists that it remembers."""
