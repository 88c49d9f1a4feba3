"""The screens and the runbook of `rebal plan-upgrade`."""
