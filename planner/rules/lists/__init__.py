"""Rules about assignor lists and the members that hold them (RB1xx)."""
