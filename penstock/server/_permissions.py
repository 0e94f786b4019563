"""Whether a client may call an operation: what that needs is asked for every stream that the call is about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyarrow import flight

from penstock.errors import NotAuthenticated, NotPermitted, ServerError
from penstock.stream import PreparedTransaction, Transaction
from penstock.wire import BUSY, pack_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.server._operations import About, Operation, Permission
    from penstock.server._session import Session

__all__ = ["EVERYBODY", "Door", "Guard", "Visitor", "check", "check_stream", "user_of", "visitor_of"]

_NAME: Final = "guard"
_ACTS: Final = {"read": "read", "write": "write to", "admin": "administer"}


class Visitor(Protocol):
    """Who calls."""

    @property
    def name(self) -> str:
        """How to call them."""

    def may(self, permission: Permission, stream: str) -> bool:
        """Whether they may do that with a stream; ``*`` stands for all there are."""


Guard = Callable[["str | None"], Visitor]
"""Returns who somebody is, by the ``Authorization`` header; ``NotAuthenticated`` if they do not say so rightly, and
``ServerError`` if that cannot be told at the moment."""


class _Everybody:
    """Whoever reaches a socket that only the owner's user can open."""

    name: Final = "everybody"

    def may(self, permission: Permission, stream: str) -> bool:
        """They may."""
        del permission, stream
        return True


EVERYBODY: Final = _Everybody()


class Door(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Asks with every call who it is."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> flight.ServerMiddleware:
        """Let the call in, or not."""
        del info
        said = next(iter(headers.get("authorization", [])), None)
        try:
            visitor = self._guard(said)
        except NotAuthenticated as error:
            raise flight.FlightUnauthenticatedError(str(error), extra_info=pack_error(error)) from error
        except ServerError as error:  # which has not looked yet
            raise flight.FlightUnavailableError(str(error), extra_info=BUSY) from error
        return _Admitted(visitor.name, partial(self._guard, said))

    @classmethod
    def at(cls, guard: Guard | None) -> dict[str, Door]:
        """Return what a Flight server takes."""
        return {} if guard is None else {_NAME: cls(guard)}


class _Admitted(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, name: str, ask: Callable[[], Visitor]) -> None:
        super().__init__()
        self.name, self.ask = name, ask


def user_of(context: flight.ServerCallContext) -> str | None:
    """Return the name of the user who calls; None where there are no users."""
    admitted = context.get_middleware(_NAME)
    return None if admitted is None else admitted.name


def visitor_of(context: flight.ServerCallContext) -> Visitor:
    """Return who calls, with what is granted now: a call may take long, and that may change."""
    admitted = context.get_middleware(_NAME)
    return EVERYBODY if admitted is None else admitted.ask()


def check(session: Session, visitor: Visitor, operation: Operation, args: list[Any]) -> None:
    """Refuse a call that the visitor may not make."""
    if visitor is EVERYBODY:
        return
    if visitor.name != session.user:
        raise NotPermitted(visitor.name, act="use the session of somebody else", advice="connect as this user")
    for stream in _ABOUT[operation.about](session, args):
        check_stream(visitor, operation.needs, stream)


def check_stream(visitor: Visitor, permission: Permission, stream: str) -> None:
    """Refuse a visitor who has not the permission for a stream, or for all of them, which is ``*``."""
    if not visitor.may(permission, stream):
        act = f"{_ACTS[permission]} {'all streams' if stream == '*' else stream}"
        grant = f"penstock user grant {visitor.name} {permission} '{stream}'"
        raise NotPermitted(visitor.name, act=act, advice=f"an administrator can allow it with {grant}")


def _named(_: Session, args: list[Any]) -> list[str]:
    return [str(args[0])]


def _pointed_at(_: Session, args: list[Any]) -> list[str]:
    return [str(getattr(args[0], "stream", args[0]))]


def _listed(_: Session, args: list[Any]) -> list[str]:
    return [str(name) for name in (args[1] if isinstance(args[1], list) else args[1:2])]


def _of_group(session: Session, args: list[Any]) -> Iterable[str]:
    return session.store.reader_group(args[0]).streams


def _of_transaction(session: Session, args: list[Any]) -> Iterable[str]:
    found = session.store.transactions.get(args[0])
    if isinstance(found, Transaction | PreparedTransaction):
        return [found.stream]
    return []  # of one that has ended only how is told


def _of_open(session: Session, args: list[Any]) -> Iterable[str]:
    return session.get(args[0], object).streams  # type: ignore[no-any-return]


_ABOUT: Final[Mapping[About, Callable[[Session, list[Any]], Iterable[str]]]] = {
    "stream": _named,
    "pointer": _pointed_at,
    "streams": _listed,
    "group": _of_group,
    "transaction": _of_transaction,
    "open": _of_open,
    "store": lambda *_: ["*"],
    "chosen": lambda *_: [],
}
