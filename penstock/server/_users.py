"""Users, their passwords, tokens and MAC keys, and what they may do; kept in one file of the store's folder.

A password is stored as an argon2 hash, a token as the sha256 of its secret: reading them gives no access. A MAC key
signs messages of FutoIn, and is stored as it is. What was not granted is denied. The file is read again when it has
changed, so a running server knows with the next call what ``penstock user`` has done.

Refusing an unknown user takes as long as refusing a wrong password, so the time reveals no names. A correct password is
cached until it was not used for a minute, as a hash with a key that no file has: not every call costs the 64 MiB and
the tenth of a second that make argon2 strong. ``_login`` limits how many are checked.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NamedTuple

import argon2
import msgspec

from penstock.errors import (
    BadArgument,
    NoSuchToken,
    NoSuchUser,
    NotAuthenticated,
    UserExists,
)
from penstock.model import check_kind, check_name, check_positive
from penstock.ports import SystemClock
from penstock.server._grants import Grant, User
from penstock.server._users_file import USERS_FILE, Content, StoredToken, StoredUser, UsersFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import Self

    from penstock.ports import Clock
    from penstock.wire.operations import Permission

__all__ = ["USERS_FILE", "Grant", "Login", "TokenInfo", "User", "Users"]

PASSWORD_SIZE_MAX: Final = 1024
TOKENS_MAX: Final = 1000  # of one user, that have not expired
_MAC_KEY_SIZE: Final = 32
_REMEMBERED_S: Final = 60.0
_NOBODY: Final = "$argon2id$v=19$m=65536,t=3,p=4$OXkRyLLE9gPXGbj+58+U8Q$O8XuDekkwAp7SVu/tLnGp/1FguU/2s2P9g2ZOqkjoks"
"""A hash without a known password: it is checked for unknown users."""


_TOKEN_UNKNOWN: Final = (
    "the token is not known here: it is mistyped, of another server, expired long ago, was revoked, or its user was "
    "removed or got another password; make one with penstock user token"
)


class TokenInfo(NamedTuple):
    """What may be shown of a token: its id, which is no secret, and when it expires, in seconds since 1970."""

    token_id: str
    user: str
    expires: float


class Login(NamedTuple):
    """A user that has proved who it is: by a token, by a key that signs, or by the password that has this hash."""

    name: str
    password: str | None = None
    token_id: str | None = None
    mac_key: str | None = None


class _CachedLogin(NamedTuple):
    """A password that was right."""

    digest: bytes
    of: str  # the hash that it was right for; with another password the login is checked again
    until: float


class Users:
    """The users of one store; see the module."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self._file, self._clock = UsersFile(path), clock or SystemClock()
        self._hasher: Final = argon2.PasswordHasher()
        self._key: Final = secrets.token_bytes(32)
        self._cached: dict[str, _CachedLogin] = {}
        self._unknown_key: Final = secrets.token_bytes(_MAC_KEY_SIZE)  # it is checked for users without a key
        self._file.content()

    @classmethod
    def open(cls, path: Path, *, clock: Clock | None = None) -> Self:
        """Open the file of users; without one there are none, and it is made with the first."""
        return cls(path, clock=clock)

    def __iter__(self) -> Iterator[User]:
        """All users, by name."""
        return iter([User(name, user.grants) for name, user in sorted(self._file.content().users.items())])

    @property
    def is_empty(self) -> bool:
        """Whether there is no user, so that nobody can log in."""
        return not self._file.content().users

    # Authentication

    def log_in(self, name: str, password: str) -> Login:
        """Check a password, unless it is remembered; ``NotAuthenticated`` does not say what is wrong.

        A check takes much memory and time, so callers limit how many run at once.
        """
        login = self.remembered(name, password)
        if login is None:
            known = self._file.content().users.get(name)
            is_right = self._is_right(_NOBODY if known is None else known.password, password)
            if not is_right or known is None:
                raise NotAuthenticated
            login = self._remember(name, known, self._keyed(name, password))
        return login

    def remembered(self, name: str, password: str) -> Login | None:
        """Return the login of a password that was right a moment ago."""
        known, cached = self._file.content().users.get(name), self._cached.get(name)
        if known is None or cached is None or cached.of != known.password or self._clock.elapsed() >= cached.until:
            return None
        digest = self._keyed(name, password)
        return self._remember(name, known, digest) if compare_digest(cached.digest, digest) else None

    def _keyed(self, name: str, password: str) -> bytes:
        return hashlib.blake2b(_encoded(f"{name}\0{password}"), key=self._key).digest()

    def _remember(self, name: str, known: StoredUser, digest: bytes) -> Login:
        self._cached[name] = _CachedLogin(digest, known.password, self._clock.elapsed() + _REMEMBERED_S)
        return Login(name, password=known.password)

    def _is_right(self, hashed: str, password: str) -> bool:
        tried = password if len(password) <= PASSWORD_SIZE_MAX else ""  # which is no user's password
        try:
            return self._hasher.verify(hashed, _encoded(tried))
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False

    def log_in_by_token(self, token: str) -> Login:
        """Return the login of a token, unless it has ended."""
        token_id, _, secret = token.partition(".")
        found = self._file.content().tokens.get(token_id)
        if not compare_digest(_digest(secret), "" if found is None else found.digest) or found is None:
            raise NotAuthenticated(_TOKEN_UNKNOWN)
        login = Login(found.user, token_id=token_id)
        self.current(login)
        return login

    def log_in_by_mac(self, name: str, matches: Callable[[bytes], bool]) -> Login:
        """Return the login of a user whose key has signed a message; ``matches`` says whether a key has.

        Refusing a user who has no key, or does not exist, takes as long.
        """
        known = self._file.content().users.get(name)
        key = known.mac_key if known is not None and known.mac_key else None
        if not matches(self._unknown_key if key is None else base64.b64decode(key)) or key is None:
            raise NotAuthenticated
        return Login(name, mac_key=key)

    def current(self, login: Login) -> User:
        """Return the user of a login, with its grants of now; ``NotAuthenticated`` if its credentials have ended."""
        content = self._file.content()
        known = content.users.get(login.name)
        if login.token_id is not None:
            self._check_token(content.tokens.get(login.token_id), login.name)
        elif known is not None:
            is_same = known.password == login.password if login.mac_key is None else known.mac_key == login.mac_key
            if not is_same:
                raise NotAuthenticated
        if known is None:
            raise NotAuthenticated
        return User(login.name, known.grants)

    def _check_token(self, token: StoredToken | None, user: str) -> None:
        if token is None or token.user != user:
            raise NotAuthenticated(_TOKEN_UNKNOWN)
        if self._clock.now() >= token.expires:
            when = datetime.fromtimestamp(token.expires, UTC)
            raise NotAuthenticated(f"the token expired on {when:%Y-%m-%d %H:%M} UTC: make one with penstock user token")

    def has(self, name: str) -> bool:
        """Whether there is a user of this name."""
        return name in self._file.content().users

    # Changes

    def add(self, name: str, password: str, *, replace: bool = False) -> None:
        """Add a user without grants; with ``replace``, a user gets another password and loses all tokens and its key.

        A password is replaced because others may know it, and they may have made tokens.
        """
        check_name("user", name)
        _check_password(password)
        hashed = self._hasher.hash(_encoded(password))

        def added(old: Content) -> Content:
            if name in old.users and not replace:
                raise UserExists(name)
            grants = old.users[name].grants if name in old.users else ()
            return _with_user(_without_tokens(old, name), name, StoredUser(hashed, grants))

        self._file.change(added)

    def remove(self, name: str) -> None:
        """Remove a user, and the tokens of that user."""

        def removed(old: Content) -> Content:
            _check_known(old, name)
            users = {other: user for other, user in old.users.items() if other != name}
            return Content(users=users, tokens=_without_tokens(old, name).tokens)

        self._file.change(removed)
        self._cached.pop(name, None)

    def grant(self, name: str, permission: Permission, pattern: str) -> None:
        """Let a user read, consume, write or administer the streams that a pattern names; again, it changes nothing."""
        new_grant = Grant(permission, pattern)
        self._file.change(lambda old: _with_grants(old, name, lambda grants: {*grants, new_grant}))

    def revoke(self, name: str, permission: Permission, pattern: str) -> tuple[bool, list[Grant]]:
        """Take back what was granted in these very words.

        Return whether it was granted, and the other grants of the user that permit the same, in part or as a whole.
        """
        revoked, before = Grant(permission, pattern), set[Grant]()

        def without(grants: Iterable[Grant]) -> set[Grant]:
            before.update(grants)
            return before - {revoked}

        self._file.change(lambda old: _with_grants(old, name, without))
        return revoked in before, sorted(grant for grant in before - {revoked} if grant.overlaps(revoked))

    def token(self, name: str, lifetime_s: float, *, is_session: bool = False) -> str:
        """Make a token, which replaces user and password until it expires; it is shown only here.

        If the user has too many, the oldest session of the console ends: whoever does not sign out leaves one behind.
        """
        check_positive("lifetime_s", lifetime_s)
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)

        def added(old: Content) -> Content:
            _check_known(old, name)
            now = self._clock.now()
            alive = {key: token for key, token in old.tokens.items() if now < token.expires}
            _make_space(alive, name)
            made = StoredToken(name, _digest(secret), now + lifetime_s, is_session or msgspec.UNSET)
            return Content(users=old.users, tokens={**alive, token_id: made})

        self._file.change(added)
        return f"{token_id}.{secret}"

    def tokens(self, name: str | None = None) -> list[TokenInfo]:
        """Return the tokens of a user, or of all, that have not expired; the next to expire first."""
        content, now = self._file.content(), self._clock.now()
        if name is not None:
            _check_known(content, name)
        found = (TokenInfo(key, token.user, token.expires) for key, token in content.tokens.items())
        mine = (token for token in found if now < token.expires and name in (None, token.user))
        return sorted(mine, key=lambda token: (token.expires, token.token_id))

    def revoke_tokens(self, name: str, token_id: str | None = None) -> int:
        """End the token of a user with this id, or all tokens of the user; return how many had not expired."""
        ended: list[TokenInfo] = []

        def revoked(old: Content) -> Content:
            mine = self.tokens(name)
            ended[:] = [token for token in mine if token_id in (None, token.token_id)]
            if token_id is not None and not ended:
                raise NoSuchToken(name, token_id)
            gone = {token.token_id for token in ended}
            return Content(users=old.users, tokens={key: token for key, token in old.tokens.items() if key not in gone})

        self._file.change(revoked)
        return len(ended)

    # Keys that sign messages of FutoIn

    def new_mac_key(self, name: str) -> str:
        """Make a key, in base64, which replaces the one that the user has; it is shown only here."""
        key = base64.b64encode(secrets.token_bytes(_MAC_KEY_SIZE)).decode()
        self._file.change(lambda old: _with_mac_key(old, name, key))
        return key

    def revoke_mac_key(self, name: str) -> bool:
        """End the key of a user; return whether there was one."""
        had: list[bool] = []

        def revoked(old: Content) -> Content:
            changed = _with_mac_key(old, name, msgspec.UNSET)
            had[:] = [bool(old.users[name].mac_key)]
            return changed

        self._file.change(revoked)
        return had[0]


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _digest(secret: str) -> str:
    return hashlib.sha256(_encoded(secret)).hexdigest()


def _check_password(password: object) -> None:
    check_kind("password", password, str)
    assert isinstance(password, str)
    if not password or len(password) > PASSWORD_SIZE_MAX:
        raise BadArgument(f"a password has 1 to {PASSWORD_SIZE_MAX} characters")


def _check_known(content: Content, name: str) -> None:
    if name not in content.users:
        raise NoSuchUser(name)


def _make_space(alive: dict[str, StoredToken], name: str) -> None:
    """Remove the oldest session of a user who has too many tokens; ``BadArgument`` if none is a session."""
    mine = {key: token for key, token in alive.items() if token.user == name}
    if len(mine) < TOKENS_MAX:
        return
    sessions = [key for key, token in mine.items() if token.is_session is True]
    if not sessions:
        raise BadArgument(f"user {name!r} has {TOKENS_MAX} tokens: revoke some with penstock user expire")
    del alive[min(sessions, key=lambda key: mine[key].expires)]


def _without_tokens(content: Content, name: str) -> Content:
    return Content(
        users=content.users, tokens={key: token for key, token in content.tokens.items() if token.user != name}
    )


def _with_user(content: Content, name: str, user: StoredUser) -> Content:
    return Content(users={**content.users, name: user}, tokens=content.tokens)


def _with_grants(content: Content, name: str, change: Callable[[tuple[Grant, ...]], set[Grant]]) -> Content:
    _check_known(content, name)
    user = content.users[name]
    return _with_user(content, name, msgspec.structs.replace(user, grants=tuple(sorted(change(user.grants)))))


def _with_mac_key(content: Content, name: str, key: str | msgspec.UnsetType) -> Content:
    _check_known(content, name)
    return _with_user(content, name, msgspec.structs.replace(content.users[name], mac_key=key))
