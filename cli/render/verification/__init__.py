"""The screens of `rebal verify`."""
