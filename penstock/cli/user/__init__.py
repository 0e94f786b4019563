"""Say who may use a server, and for what."""
