"""Permissions: whether a client may call an operation, checked for every stream that the call is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyarrow import flight

from penstock.errors import NoSuchGroup, NoSuchTransaction, NotAuthenticated, NotPermitted, ServerError
from penstock.server._owners import check_transaction
from penstock.server._session import OpenHandle
from penstock.stream import LocalTransaction, PreparedTransaction
from penstock.wire import BUSY, pack_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from penstock.server._quotas import Quota
    from penstock.server._session import Session
    from penstock.stream.catalog import GroupState
    from penstock.wire.operations import About, Operation, Permission

__all__ = [
    "ANONYMOUS",
    "AuthMiddleware",
    "Guard",
    "Principal",
    "asking",
    "check",
    "check_stream",
    "hold",
    "may_see",
    "principal_of",
    "user_of",
]

_NAME: Final = "guard"
_ACTS: Final[Mapping[Permission, str]] = {
    "read": "read",
    "consume": "use reader groups and consumers of",
    "write": "write to",
    "admin": "administer",
}


class Principal(Protocol):
    """The user that calls, or the anonymous one."""

    @property
    def name(self) -> str:
        """The name of the user."""

    def may(self, permission: Permission, stream: str) -> bool:
        """Whether the permission is granted for a stream; ``*`` stands for all streams."""


Guard = Callable[["str | None", str], Callable[[], Principal]]
"""Checks an ``Authorization`` header from a peer, and returns a function that returns its principal of the moment.

``NotAuthenticated`` if the credentials are wrong, or wrong by now; ``ServerError`` if they cannot be checked."""


class _Anonymous:
    """Every client of a server without users, or of a socket that only the owner's user can open."""

    name: Final = "anonymous"

    def may(self, permission: Permission, stream: str) -> bool:
        """Permit every call: there are no users to tell apart."""
        del permission, stream
        return True


ANONYMOUS: Final = _Anonymous()


class AuthMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Keeps the credentials of every call; they are checked where the call is handled, which knows its peer."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> flight.ServerMiddleware:
        """Return the caller, with the ``Authorization`` header that it sent."""
        del info
        return _Caller(self._guard, next(iter(headers.get("authorization", [])), None))

    @classmethod
    def at(cls, guard: Guard | None) -> dict[str, AuthMiddleware]:
        """Return the middleware of a Flight server; without users every client is the anonymous one."""
        return {_NAME: cls((lambda *_: lambda: ANONYMOUS) if guard is None else guard)}


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """The client of one call, which is authenticated once, and counts for its user until the answer is sent."""

    def __init__(self, guard: Guard, header: str | None) -> None:
        super().__init__()
        self._guard, self._header = guard, header
        self._ask: Callable[[], Principal] | None = None
        self._held: list[tuple[Quota, str | None]] = []

    def authenticated(self, peer: str) -> Callable[[], Principal]:
        """Return what returns the principal of the moment; the first time, check the credentials."""
        if self._ask is None:
            try:
                self._ask = self._guard(self._header, peer)
            except NotAuthenticated as error:
                raise flight.FlightUnauthenticatedError(str(error), extra_info=pack_error(error)) from error
            except ServerError as error:  # the credentials were not checked yet
                raise flight.FlightUnavailableError(str(error), extra_info=BUSY) from error
        return self._ask

    def hold(self, quota: Quota, user: str | None) -> None:
        """Take one of a kind for the user, until the call is over."""
        quota.take(user)
        self._held.append((quota, user))

    def call_completed(self, exception: pa.ArrowException | None) -> None:
        """Give everything back: the answer is sent, or the client is gone, and the thread is free."""
        del exception
        for quota, user in self._held:
            quota.give(user)


def user_of(context: flight.ServerCallContext) -> str | None:
    """Return the name of the user that calls; None on a server without users."""
    principal = principal_of(context)
    return None if principal is ANONYMOUS else principal.name


def hold(context: flight.ServerCallContext, quota: Quota) -> None:
    """Take one of a kind for the user that calls, until the call is over."""
    caller = context.get_middleware(_NAME)
    if caller is not None:
        caller.hold(quota, user_of(context))


def principal_of(context: flight.ServerCallContext) -> Principal:
    """Return the principal of a call, with its grants of this moment: they may change during a long call."""
    return asking(context)()


def asking(context: flight.ServerCallContext) -> Callable[[], Principal]:
    """Return a function that does what :func:`principal_of` does, also where the context is gone."""
    caller = context.get_middleware(_NAME)
    return (lambda: ANONYMOUS) if caller is None else caller.authenticated(context.peer())


def check(session: Session, principal: Principal, call: Operation) -> None:
    """Refuse a call that the principal may not make."""
    if principal is ANONYMOUS:
        return
    if principal.name != session.user:
        raise NotPermitted(principal.name, act="use the session of another user", advice="connect as this user")
    for stream in _ABOUT[call.about](session, principal, call):
        check_stream(principal, call.needs, stream)
    if call.about == "transaction":
        check_transaction(session, call.subject, call.operation)


def check_stream(principal: Principal, permission: Permission, stream: str) -> None:
    """Refuse a principal without the permission for a stream, or for all of them, which is ``*``."""
    if not principal.may(permission, stream):
        act = f"{_ACTS[permission]} {'all streams' if stream == '*' else stream}"
        grant = f"penstock user grant {principal.name} {permission} '{stream}'"
        raise NotPermitted(principal.name, act=act, advice=f"an administrator can allow it with {grant}")


def may_see(principal: Principal, group: GroupState) -> bool:
    """Whether a user may know of a group: it is the user's own, or the user may read all of its streams."""
    return group.owner == principal.name or all(principal.may("read", stream) for stream in group.streams or ["*"])


def _of_group(session: Session, principal: Principal, call: Operation) -> Iterable[str]:
    """Return the streams of a group. For a user who may not know of it, it is not there."""
    session.store.reader_group(call.subject)
    group = session.store.catalog.group(call.subject)
    if not may_see(principal, group):
        raise NoSuchGroup(group.name)
    return list(group.streams)


def _of_transaction(session: Session, principal: Principal, call: Operation) -> Iterable[str]:
    """Return the stream of a transaction. For a user who may not know of the stream, the transaction is not there."""
    found = session.store.transactions.get(call.subject)
    if not isinstance(found, LocalTransaction | PreparedTransaction):
        return []  # the answer only says how it has ended
    if not (principal.may("read", found.stream) or principal.may("write", found.stream)):
        raise NoSuchTransaction(call.subject)
    return [found.stream]


_ABOUT: Final[Mapping[About, Callable[[Session, Principal, Any], Iterable[str]]]] = {
    "stream": lambda _, __, call: [call.subject],
    "pointer": lambda _, __, call: [call.subject.stream],
    "streams": lambda _, __, call: call.streams,
    "group": _of_group,
    "transaction": _of_transaction,
    "open": lambda session, _, call: session.get(call.subject, OpenHandle).streams,
    "store": lambda *_: ["*"],
    "unchecked": lambda *_: [],
}
