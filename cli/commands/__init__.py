"""The commands, one module each (`inspect_cmd.py` …), loaded only when one of them is typed.

A module holds one function called `command`: its parameters are the command's options, its
docstring is the command's help, and what it returns is the exit code (see cli/errors.py).
"""
