"""Login: the credentials in the ``Authorization`` header, as HTTP and Flight send it."""

from __future__ import annotations

import base64
import ipaddress
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.errors import LoginsBusy, NotAuthenticated, ServerBusy, UsersCorrupt, UsersUnreadable
from penstock.ports import SystemClock
from penstock.server._addresses import split_peer
from penstock.server._limits import QuotaUse
from penstock.server._login_queue import Failures, LoginQueue, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Clock
    from penstock.server._users import Login, User, Users

__all__ = ["Logins", "network_of"]

T = TypeVar("T")
_NOT_UNDERSTOOD: Final = "invalid Authorization header: send Basic with name and password, or Bearer with a token"
_V6_NETWORK: Final = 64  # bits: the rest of an address is a host's own choice
_logger: Final = logging.getLogger("penstock.server")


class Logins:
    """Logs users in, by the header that they send and the connection on which they send it.

    ``checks`` passwords are checked at once, and ``waiting`` logins wait. Failed logins are logged, counted and slowed
    down; see ``_login_queue``. A wrong token slows nothing down: it takes no time to check, it cannot be guessed, and a
    program that has an old one may be an honest one. ``sleep`` waits for so many seconds.
    """

    def __init__(
        self,
        users: Users,
        *,
        checks: int = 2,
        waiting: int = 256,
        clock: Clock | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._users, self._sleep = users, sleep
        self._checks, self._waiting = checks, waiting
        self._queue = LoginQueue(checks=checks, waiting=waiting)
        self._failures = Failures(clock or SystemClock())
        self._damage: str | None = None  # of the file of users, which was logged
        self.refused = 0  # logins that were not checked, because too many waited

    @property
    def users(self) -> Users:
        """The users that log in."""
        return self._users

    @property
    def failed(self) -> int:
        """The number of logins that failed."""
        return self._failures.total

    @property
    def waiting_max(self) -> int:
        """The number of logins that may wait, each in a thread of its own."""
        return self._waiting

    def uses(self) -> list[QuotaUse]:
        """Return how many logins are checked and wait, and may, and how many had to wait and were refused."""
        queue = self._queue
        return [
            QuotaUse("password_checks", self._checks, queue.checked, queue.delayed),
            QuotaUse("waiting_logins", self._waiting, queue.waiting, self.refused),
        ]

    def __call__(self, header: str | None, peer: str, *, waits: bool = True) -> Callable[[], User]:
        """Return a function that returns the user as it is at that moment; ``NotAuthenticated`` once it is not.

        Unless it ``waits`` after a failure, a network that has to wait is refused meanwhile.
        """
        login = self._checked(partial(self._log_in, header, peer, waits=waits))
        return partial(self._checked, partial(self._users.current, login))

    def by_mac(self, name: str, matches: Callable[[bytes], bool], peer: str) -> Callable[[], User]:
        """Log in a user whose key has signed a message, as :meth:`__call__` does without waiting.

        ``matches`` says whether a key has signed it.
        """
        login = self._checked(partial(self._log_in_by_mac, name, matches, Origin(network_of(peer), peer)))
        return partial(self._checked, partial(self._users.current, login))

    def begin_session(self, name: str, password: str, peer: str, *, lifetime_s: float) -> str:
        """Return a token for a user that sends its password; as :meth:`__call__`, it waits after a failure."""
        header = base64.b64encode(f"{name}:{password}".encode(errors="surrogatepass")).decode()
        if ":" in name:  # which no name has, and the password would begin there
            raise NotAuthenticated
        self(f"Basic {header}", peer)
        return self._checked(lambda: self._users.token(name, lifetime_s, is_session=True))

    def check(self, header: str | None, peer: str) -> User:
        """Return the user, without a wait after a failure: a network that has to wait is refused meanwhile."""
        return self._checked(lambda: self._users.current(self._log_in(header, peer, waits=False)))

    def has_users(self) -> bool:
        """Whether anybody could log in."""
        return self._checked(lambda: not self._users.is_empty)

    def _checked(self, check: Callable[[], T]) -> T:
        """Return what a check returns; without a sound file of users, the log says where it is, and no client learns.

        A client may try again, because an administrator can repair the file while the server runs.
        """
        try:
            result = check()
        except (UsersCorrupt, UsersUnreadable) as error:
            if self._damage != str(error):
                _logger.warning("credentials cannot be checked", extra={"reason": str(error)})
            self._damage = str(error)
            raise ServerBusy("credentials cannot be checked now: ask an administrator to look at the log") from None
        self._damage = None
        return result

    def _log_in(self, header: str | None, peer: str, *, waits: bool) -> Login:
        name, secret = _credentials(header)
        origin = Origin(network_of(peer), peer)
        try:
            if name is None:
                return self._users.log_in_by_token(secret)
            return self._log_in_by_password(name, secret, origin, waits=waits)
        except LoginsBusy:
            self.refused += 1
            raise
        except NotAuthenticated as error:
            delay_s = self._note_failure(name, origin, error)
            if waits and delay_s and name is not None:
                with suppress(LoginsBusy), self._queue.place(origin, name):
                    self._sleep(delay_s)
            raise

    def _log_in_by_password(self, name: str, password: str, origin: Origin, *, waits: bool) -> Login:
        login = self._users.remembered(name, password)
        if login is None:
            if not waits:
                self._check_slowed(origin, name)
            with self._queue.turn(origin, name):
                login = self._users.log_in(name, password)
            self._queue.note_known(origin.network, name)
        return login

    def _log_in_by_mac(self, name: str, matches: Callable[[bytes], bool], origin: Origin) -> Login:
        try:
            self._check_slowed(origin, name)
            login = self._users.log_in_by_mac(name, matches)
        except LoginsBusy:
            self.refused += 1
            raise
        except NotAuthenticated as error:
            self._note_failure(name, origin, error)
            raise
        self._queue.note_known(origin.network, name)
        return login

    def _check_slowed(self, origin: Origin, name: str) -> None:
        """Refuse a network that has to wait, unless the user has logged in from it before."""
        if self._failures.wait_s(origin.network) and not self._queue.is_known(origin.network, name):
            raise LoginsBusy

    def _note_failure(self, name: str | None, origin: Origin, error: NotAuthenticated) -> float:
        is_token = name is None
        if not is_token:
            self._queue.note_failed(origin.peer)
        delay_s, count = self._failures.note(origin.network, slows=not is_token)
        if count:
            user = "(token)" if name is None else name if self._users.has(name) else "(unknown)"  # it may be a password
            said = {"address": origin.network, "user": user, "failures": count, "reason": str(error)}
            _logger.warning("failed login", extra=said)
        return delay_s


def _credentials(header: str | None) -> tuple[str | None, str]:
    """Return the name and password that ``Basic`` has, or None and the token of ``Bearer``."""
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() == "bearer":
        return None, given.strip()
    if not scheme:
        raise NotAuthenticated("authentication required: pass user and password, or a token")
    if scheme.lower() != "basic":
        raise NotAuthenticated(_NOT_UNDERSTOOD)
    try:
        name, found, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:  # neither base64 nor UTF-8
        raise NotAuthenticated(_NOT_UNDERSTOOD) from None
    if not found:
        raise NotAuthenticated(_NOT_UNDERSTOOD)
    return name, password


def network_of(peer: str) -> str:
    """Return the network of a peer: its address; of IPv6 the first half, because a host may have all that begin so."""
    host, _ = split_peer(peer)
    with suppress(ValueError):
        found = ipaddress.ip_address(host)
        mapped = getattr(found, "ipv4_mapped", None)
        if mapped is not None:
            return str(mapped)
        if found.version == 6:
            return str(ipaddress.ip_network((found, _V6_NETWORK), strict=False))
    return host
