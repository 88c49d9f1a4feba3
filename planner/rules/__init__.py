"""One module for each hazard; its docstring is what `rebal explain ID` prints."""
