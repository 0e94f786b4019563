"""The store over the wire: the same streams, writers and readers, of a store that another process has open."""
