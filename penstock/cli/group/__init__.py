"""Make, look at, move and delete reader groups."""
