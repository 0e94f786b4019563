"""Make, look at and change streams."""
