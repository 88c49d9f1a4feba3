"""What the operator types and reads; thin: parse, call, render."""
