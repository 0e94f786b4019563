"""Manage the users of a server and their permissions."""
