"""One folder, many processes: the first one owns the store in it, and serves it to the others over a socket.

The owner listens at the owner socket, which costs a socket and a thread; the Flight service starts when a client asks
for it. A client that finds no owner, because the owner has ended or was killed, takes the folder over: it becomes the
owner, serves the folder, and continues as the client that it was. A process that may be killed at any time does not
become the owner; it starts an owner process instead, which ends when no client was connected for a while, or when a
process that wants to own the folder asks for it while no client is connected.

The service is in :mod:`penstock.server`, which also uses this package. So the caller gives it: ``serve`` is called with
the engine and a location, and returns the running service.
"""

from penstock.local._finder import open_shared
from penstock.local._folder import raise_file_limit
from penstock.local._owner_socket import open_owned

__all__ = ["open_owned", "open_shared", "raise_file_limit"]
