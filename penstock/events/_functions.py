"""The functions of FTN18 that a server offers: their parameters, and how large their messages may be.

The version is part of every call; nothing is negotiated. A server of 1.1 answers calls of 1.0, too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from penstock.errors import FutoinError
from penstock.events._errors import invalid
from penstock.events._event import Component, EventId, EventType, RequestId, words_of
from penstock.events._sizes import EVENTS_MAX, LARGE_MESSAGE, SMALL_MESSAGE

__all__ = [
    "EVENTS_MAX",
    "LARGE_MESSAGE",
    "LIVE",
    "SMALL_MESSAGE",
    "AddEvent",
    "Call",
    "PingServer",
    "PollEvents",
    "ReadyToReceive",
    "Register",
    "Request",
    "call_of",
    "request_of",
]

LIVE: Final = "LIVE"
_MINOR: Final = 1
_CALL: Final = re.compile(r"([a-z][a-z0-9]*(?:\.[a-z0-9]+)+):([0-9]{1,4})\.([0-9]{1,4}):([A-Za-z][A-Za-z0-9]*)")


class _Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class PingServer(_Parameters, frozen=True):
    """Whether the server is there."""

    echo: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class AddEvent(_Parameters, frozen=True):
    """Add an event; the answer, its id, means that it is durable."""

    type: EventType
    data: Any


class Register(_Parameters, frozen=True):
    """Keep events until this component has read them."""

    component: Component


class _Consume(_Parameters, frozen=True):
    component: Component
    want: list[EventType] | None = None

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that are wanted, None for all."""
        return None if self.want is None else frozenset(self.want)

    @property
    def permission(self) -> str:
        """What a user needs to get events as this component: only one that is registered moves retention."""
        return "read" if self.component == LIVE else "consume"


class PollEvents(_Consume, frozen=True):
    """Return the events behind an id; without an id, behind those that were delivered."""

    last_id: EventId | None = None


class ReadyToReceive(_Consume, frozen=True):
    """Push events from now on."""


_PING: Final[dict[str, type[_Parameters]]] = {"ping": PingServer}
_POLL: Final = _PING | {"registerConsumer": Register, "pollEvents": PollEvents}
_INTERFACES: Final = {
    "futoin.ping": _PING,
    "futoin.evt.gen": _PING | {"addEvent": AddEvent},
    "futoin.evt.poll": _POLL,
    "futoin.evt.push": _POLL | {"readyToReceive": ReadyToReceive},
}


class Request(NamedTuple):
    """A message to the server, its call not looked at yet."""

    function: str
    parameters: object
    rid: str | None
    sec: str | None


class Call(NamedTuple):
    """A function that is called, and its parameters."""

    interface: str
    minor: int
    parameters: PingServer | AddEvent | Register | PollEvents | ReadyToReceive

    @property
    def answer_size_max(self) -> int:
        """The bytes that the client takes as an answer."""
        is_large = self.interface == "futoin.evt.poll" and self.minor >= 1 and isinstance(self.parameters, PollEvents)
        return LARGE_MESSAGE if is_large else SMALL_MESSAGE


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    f: str
    p: dict[str, Any] = {}
    rid: RequestId | None = None
    sec: str | None = None
    obf: str | None = None
    forcersp: bool = False


def request_of(message: object, *, needs_rid: bool = False) -> Request:
    """Return the request that a message holds; ``InvalidRequest`` for missing, unknown and wrong fields."""
    try:
        found = msgspec.convert(message, _Message)
    except msgspec.ValidationError as error:
        raise invalid(f"the message is not a request: {words_of(error)}") from None
    if needs_rid and found.rid is None:
        raise invalid("a message on a WebSocket needs a rid")
    return Request(found.f, found.p, found.rid, found.sec)


def call_of(request: Request) -> Call:
    """Return which function is called; the error that the specification has for what is not there or not right."""
    interface, minor, kind = _function_of(request.function)
    try:
        parameters: Any = msgspec.convert(request.parameters, kind)
    except msgspec.ValidationError as error:
        function = request.function.rpartition(":")[2]
        raise invalid(f"wrong parameters of {function}: {words_of(error)}") from None
    return Call(interface, minor, parameters)


@lru_cache(maxsize=64)
def _function_of(name: str) -> tuple[str, int, type[_Parameters]]:
    """Return the interface, the minor version and the parameters of a function."""
    parsed = _CALL.fullmatch(name)
    if parsed is None:
        raise invalid("f is not of the form interface:version:function")
    interface, major, minor, function = parsed.groups()
    functions = _INTERFACES.get(interface)
    if functions is None:
        raise FutoinError("UnknownInterface", f"there is no interface {interface}: there are {', '.join(_INTERFACES)}")
    newest = 0 if interface == "futoin.ping" else _MINOR
    if major != "1" or int(minor) > newest:
        raise FutoinError("NotSupportedVersion", f"{interface} is served in the versions 1.0 to 1.{newest}")
    kind = functions.get(function)
    if kind is None:
        raise invalid(f"{interface} has no function {function}: it has {', '.join(functions)}")
    return interface, int(minor), kind
