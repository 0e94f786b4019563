"""Create, list, change and delete streams."""
