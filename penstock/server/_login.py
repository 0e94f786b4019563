"""Who somebody says they are: the ``Authorization`` header, as HTTP and Flight send it."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from penstock.errors import NotAuthenticated

if TYPE_CHECKING:
    from penstock.server._users import User, Users

__all__ = ["login"]


def login(users: Users, header: str | None) -> User:
    """Return the user that ``Basic`` name and password, or a ``Bearer`` token, belong to."""
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() == "bearer":
        return users.authenticate_token(given.strip())
    if scheme.lower() != "basic":
        raise NotAuthenticated
    try:
        name, found, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise NotAuthenticated from None
    if not found:
        raise NotAuthenticated
    return users.authenticate(name, password)
