"""Login: the credentials in the ``Authorization`` header, as HTTP and Flight send it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from penstock.errors import NotAuthenticated

if TYPE_CHECKING:
    from penstock.server._users import User, Users

__all__ = ["login"]

_NOT_UNDERSTOOD: Final = "the Authorization header is not understood: send Basic with name and password, or Bearer"


def login(users: Users, header: str | None) -> User:
    """Return the user that ``Basic`` name and password, or a ``Bearer`` token, belong to."""
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() == "bearer":
        return users.authenticate_token(given.strip())
    if not scheme:
        raise NotAuthenticated("the server has to know who you are: give user and password, or a token")
    if scheme.lower() != "basic":
        raise NotAuthenticated(_NOT_UNDERSTOOD)
    try:
        name, found, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:  # neither base64 nor UTF-8
        raise NotAuthenticated(_NOT_UNDERSTOOD) from None
    if not found:
        raise NotAuthenticated(_NOT_UNDERSTOOD)
    return users.authenticate(name, password)
