"""Sockets that belong to others in this process."""

from __future__ import annotations

import os
import socket

__all__ = ["copied_socket"]


def copied_socket(number: int) -> socket.socket:
    """Return a socket of this process on a second descriptor, which is the caller's to close.

    ``OSError`` if the descriptor is not a socket. The copy is closed then: a copy that stays open keeps a pipe from
    its end, and a file locked.
    """
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except BaseException:
        os.close(copy)
        raise
