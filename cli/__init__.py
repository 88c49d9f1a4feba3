"""The command line: parse the options, call planner and inspectors, render the result."""
