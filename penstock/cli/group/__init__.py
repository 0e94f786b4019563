"""Look at and move reader groups."""
