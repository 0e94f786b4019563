"""The file of users, ``users.json``: what it holds, and how it is read and changed.

It is read again when it has changed. Passwords are hashes, tokens digests; a MAC key has to be known as it is to check
a signature, so the file is closed to other users of the machine, as all files of the store are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from penstock.errors import UsersCorrupt, UsersUnreadable
from penstock.model import UNDECODABLE, check_name
from penstock.server._files import alone_in, read_file, replace_file
from penstock.server._grants import Grant  # noqa: TC001 - msgspec looks it up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["USERS_FILE", "Content", "StoredToken", "StoredUser", "UsersFile"]

USERS_FILE: Final = "users.json"
_FILE_SIZE_MAX: Final = 64 << 20
_YEAR_10000: Final = 253_402_300_800


class StoredUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's password hash, permissions and the key that signs messages, as users.json stores them."""

    password: Annotated[str, msgspec.Meta(pattern="^[!-~]*$")]  # a hash
    grants: tuple[Grant, ...] = ()
    mac_key: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9+/]{43}=\Z")] | msgspec.UnsetType = msgspec.UNSET


class StoredToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token's user and end, as users.json stores them under the token's id; and whether the console made it."""

    user: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    expires: Annotated[float, msgspec.Meta(ge=0, lt=_YEAR_10000)]
    is_session: bool | msgspec.UnsetType = msgspec.UNSET


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``users.json``."""

    format: Literal[1] = 1
    users: dict[str, StoredUser] = {}
    tokens: dict[str, StoredToken] = {}

    def __post_init__(self) -> None:
        """Refuse names that no user can be given."""
        for name in self.users:
            check_name("user", name)


class UsersFile:
    """The file; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[Content, tuple[int, ...] | None] = (Content(), None)  # in one piece: threads read it

    def change(self, change: Callable[[Content], Content]) -> None:
        """Write what a change makes of what the file holds now."""
        with alone_in(self._path.parent):
            content = change(self.content())
            data = msgspec.json.format(msgspec.json.encode(content, order="sorted"))
            replace_file(self._path, data + b"\n")

    def content(self) -> Content:
        """Return what the file holds, read again if it is another one, or was written to."""
        content, version = self._seen
        found = self._version()
        if found != version:
            content = Content() if found is None else self._read()
            self._seen = content, found
        return content

    def _version(self) -> tuple[int, ...] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> Content:
        try:
            data = read_file(self._path, size=_FILE_SIZE_MAX + 1)
        except OSError as error:
            raise self._unreadable(error) from error
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Content:
        if len(data) > _FILE_SIZE_MAX:
            raise self._damaged(f"it is larger than {_FILE_SIZE_MAX} bytes")
        try:
            return msgspec.json.decode(data, type=Content)
        except UNDECODABLE as error:
            raise self._damaged(str(error)) from error

    def _unreadable(self, error: OSError) -> UsersUnreadable:
        return UsersUnreadable(str(self._path), reason=error.strerror or str(error))

    def _damaged(self, reason: str) -> UsersCorrupt:
        return UsersCorrupt(str(self._path), offset=None, reason=reason)
