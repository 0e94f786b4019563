"""Show the servers that share a store."""
