"""Show the servers that share a store, and register the servers that hold its plogs."""
