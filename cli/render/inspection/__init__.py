"""The screen and the document of `rebal inspect`."""
