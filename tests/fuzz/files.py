"""Decoders of files, and of credentials that are checked against one of them; and good inputs for them.

Inputs are read from memory: a file of its own for each would take longer than its decoder.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from base64 import b64encode
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import sha256
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.checkpoints import known_job, read_job
from penstock.errors import NotAuthenticated
from penstock.events._archived_events import ArchiveProgress
from penstock.events._job_folder import JobFolder
from penstock.events._receivers import PositionFile
from penstock.server import _users
from penstock.server._config import load_config
from penstock.server._login import _credentials

if TYPE_CHECKING:
    from typing import Self

MAC_KEY: Final = b"0123456789abcdef0123456789abcdef"
_CHEAP: Final = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$k5hVZTQqFRdKlYY"  # a hash that is quickly checked
_UID: Final = 7


class _MemoryFile:
    """A file, or a folder in which every file has the same content, as far as a decoder reads a path."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __truediv__(self, _: str) -> Self:
        return self

    def open(self, _: str) -> BytesIO:
        return BytesIO(self._data)

    def read_bytes(self) -> bytes:
        return self._data

    def read_text(self, encoding: str) -> str:
        return TextIOWrapper(BytesIO(self._data), encoding).read()


# Users


class _QuickUsers(_users.Users):
    """Users whose passwords are quickly checked: one in an expensive hash is not, and none is checked twice."""

    @lru_cache(10_000)  # noqa: B019 - there are two of these objects, which live as long as the process
    def _is_right(self, hashed: str, password: str) -> bool:
        is_expensive = any(len(number) > 2 for number in re.findall(r"[mtp]=([0-9]+)", hashed))
        return super()._is_right(_CHEAP if is_expensive else hashed, password)


@cache
def known_users() -> _users.Users:
    """Return users from a file."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    atexit.register(shutil.rmtree, folder)
    (folder / "users").write_bytes(users_files()[0])
    return _QuickUsers.open(folder / "users")


@cache
def _users_of_input() -> _users.Users:
    return _QuickUsers.open(Path("there is no such file"))


def users(data: bytes) -> None:
    """Read a file of users, and log in with what may be in it."""
    users = _users_of_input()
    users._file._seen = users._file._decoded(data), None  # as if it had been read
    users._cached.clear()
    for user in users:
        user.may("read", "plant/readings")
        with suppress(NotAuthenticated):
            users.log_in(user.name, "secret")
    for token in ("0123456789abcdef.secret", "."):
        with suppress(NotAuthenticated):
            users.log_in_by_token(token)


def users_files() -> list[bytes]:
    """Return files of users, one without any."""
    token = {"user": "anna", "digest": sha256(b"secret").hexdigest(), "expires": 4e9}
    user = {"password": _CHEAP, "mac_key": b64encode(MAC_KEY).decode(), "grants": [["read", "*"], ["write", "plant/*"]]}
    tokens = {"0123456789abcdef": token, "": {**token, "expires": 1.0}}
    return [msgspec.json.encode({"format": 1, "users": {"anna": user}, "tokens": tokens}), b"{}"]


def authorization(data: bytes) -> None:
    """Log in with an Authorization header."""
    name, secret = _credentials(data.decode("latin-1"))
    if name is None:
        known_users().log_in_by_token(secret)
    else:
        known_users().log_in(name, secret)


def authorizations() -> list[bytes]:
    """Return headers with a password and with a token."""
    return [b"Basic YW5uYTpzZWNyZXQ=", b"Bearer 0123456789abcdef.secret"]


# Settings


def config(data: bytes) -> None:
    """Load the settings of a server."""
    load_config(environ={}, path=_path(data))


def configs() -> list[bytes]:
    """Return files of settings."""
    return [
        b'host = "127.0.0.1"\nport = 0\nmax_connections = 10\nidle_timeout_s = 2.5\nlog_format = "json"\n',
        b'tls = true\ntls_cert = "a"\ntls_key = "b"\nmax_message_bytes = 16777216\n',
    ]


def config_value(data: bytes) -> None:
    """Load a setting from the environment."""
    name, _, value = data.decode("utf-8", "surrogateescape").partition("=")
    load_config(environ={f"PENSTOCK_{name}": value}, path=_EMPTY)


def config_values() -> list[bytes]:
    """Return settings of every kind."""
    return [b"PORT=7367", b"TLS=true", b"HOST=::1", b"IDLE_TIMEOUT_S=2.5"]


# Files of jobs and receivers


def job(data: bytes) -> None:
    """Read a job's files: the record, and the progress."""
    folder = _path(data)
    read_job(folder)
    record = known_job(folder, "archive-local", {"plant/readings": _UID}, None)
    assert record is not None, "it was written"
    JobFolder(folder, record).load(ArchiveProgress)


def jobs() -> list[bytes]:
    """Return the record of a job, and its progress, in one: either passes over the other's fields."""
    record = {"name": "a", "kind": "archive-local", "streams": {"plant/readings": _UID}, "consumer": "archive-a"}
    return [msgspec.json.encode(record | {"batch": 1, "cut": "plant/readings:0@70"}), msgspec.json.encode(record)]


def position(data: bytes) -> None:
    """Read a receiver's position."""
    file = _position_file()
    file._path = _path(data)
    file.load()


@cache
def _position_file() -> PositionFile:
    return PositionFile(Path("there is no such file"))


def positions() -> list[bytes]:
    """Return a position."""
    return [b"70\n"]


def _path(data: bytes) -> Any:  # noqa: ANN401 - a path
    return _MemoryFile(data)


_EMPTY: Final = _path(b"")
