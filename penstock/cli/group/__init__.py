"""Create, list, move and delete reader groups."""
