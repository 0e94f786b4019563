"""Decoders of FutoIn: what peers send, what a server sends, and what is stored; and good inputs for them."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import FutoinError, NotAuthenticated, ServerError
from penstock.events._channel import _PeerAnswer
from penstock.events._codings import CODINGS, JSON, coding_of
from penstock.events._event import Event, EventId, pack_event, unpack_events
from penstock.events._functions import AddEvent, PingServer, call_of, request_of
from penstock.events._mac import mac_base, mac_of
from penstock.events._peer import _in_coding
from penstock.events._receivers import _OnEvents
from penstock.events._sizes import EVENT_SIZE_MAX
from penstock.server._futoin import _Authenticator
from penstock.server._login import Logins
from tests.fuzz.files import MAC_KEY, known_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.events._codings import Coding

ADD: Final = "futoin.evt.gen:1.1:addEvent"


def message(data: bytes) -> None:
    """Understand a call in any coding, up to the text that is signed and the event that is stored."""
    coding = coding_of(data)
    found = coding.decode(data)
    assert JSON.decode(JSON.encode(found)) == found, "it is a JSON value"
    call = call_of(request_of(found, needs_rid=True))
    mac_base(found)
    _in_coding(coding, JSON.encode({"r": call.parameters, "rid": found["rid"]}), EVENT_SIZE_MAX)
    if isinstance(call.parameters, AddEvent):
        event = pack_event(call.parameters.type, call.parameters.data, "2024-12-31T23:59:59Z")
        assert unpack_events([1], [event])[0] is not None, "an event that was added is delivered"


def _good_messages() -> list[dict[str, Any]]:
    calls: dict[str, dict[str, Any]] = {
        "futoin.ping:1.0:ping": {"echo": 1},
        ADD: {"type": "DEMO", "data": {"a": [1, 2.5, None, True, "text"]}},
        "futoin.evt.poll:1.1:registerConsumer": {"component": "demo"},
        "futoin.evt.poll:1.0:pollEvents": {"component": "demo", "last_id": "70", "want": ["DEMO"]},
        "futoin.evt.push:1.1:readyToReceive": {"component": "LIVE", "want": None},
    }
    return [{"f": function, "p": given, "rid": "C1", "sec": "anna:secret"} for function, given in calls.items()]


_ADDED: Final = _good_messages()[1]
_addresses: Final = count()


def in_coding(coding: Coding) -> Callable[[bytes], None]:
    """Return a decoder of calls in one coding, whose inputs lack the letters that tell it."""
    return lambda data: message(coding.prefix + data)


def messages_in(coding: Coding) -> list[bytes]:
    """Return calls of every function."""
    return [coding.encode(found).removeprefix(coding.prefix) for found in _good_messages()]


def sec(data: bytes) -> None:
    """Check credentials, a password or a signature; the message that they are for is below them."""
    given, _, signed = data.partition(b"\n")
    try:
        found = JSON.decode(signed)
    except FutoinError:
        found = None
    number = next(_addresses)  # each from an address of its own: one that fails often has to wait
    peer = f"http:[10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}]:1"
    loop, logins = _served()
    authenticate = _Authenticator(logins, peer, None, is_secure=True)
    with _quiet():
        message = found if isinstance(found, dict) else _ADDED
        loop.run_until_complete(authenticate(given.decode(errors="replace"), message))


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that does at once what others leave to a thread."""

    def run_in_executor(self, _executor: object, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # noqa: ANN401 - anything
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - as a thread would
            future.set_exception(error)
        return future


@contextmanager
def _quiet() -> Iterator[None]:
    """Log no wrong password: there are thousands."""
    logger = logging.getLogger("penstock.server")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@cache
def _served() -> tuple[asyncio.AbstractEventLoop, Logins]:
    return _Loop(), Logins(known_users())


def secs() -> list[bytes]:
    """Return a password, and signatures with their message."""
    plain = _ADDED
    schemes = {"-smac:anna:HS256": "sha256", "-hmac:anna:SHA512": "sha512", "-hmac:anna:MD5": "md5"}
    codes = {scheme: base64.b64encode(mac_of(plain, MAC_KEY, name)).decode() for scheme, name in schemes.items()}
    return [b"anna:secret\n", *(f"{scheme}:{code}\n{json.dumps(plain)}".encode() for scheme, code in codes.items())]


SEC_ERRORS: Final = (NotAuthenticated, ServerError)
ANSWER_ERRORS: Final = (FutoinError, msgspec.ValidationError)
"""For which the client closes the connection."""


def answer(data: bytes) -> None:
    """Take what a server sends: an answer of any type, or pushed events."""
    found = JSON.decode(data)
    if isinstance(found, dict) and "f" in found:
        for event in msgspec.convert(found.get("p"), _OnEvents).events:
            int(event.id)
        return
    result = msgspec.convert(found, _PeerAnswer).r
    for kind in (bool, EventId, list[Event], PingServer):
        try:
            repr(msgspec.convert(result, kind))
        except msgspec.ValidationError:
            continue


def answers() -> list[bytes]:
    """Return answers of every type, an error, and pushed events."""
    event = {"id": "70", "type": "DEMO", "data": {"a": 1}, "ts": "2024-12-31T23:59:59Z"}
    results: list[Any] = [True, "70", [event], {"echo": 1}]
    sent = [{"r": result, "rid": "C1"} for result in results]
    sent.append({"e": "NotRegistered", "edesc": "text", "rid": "C1"})
    sent.append({"f": "futoin.evt.receiver:1.1:onEvents", "p": {"seq": 0, "events": [event]}, "rid": "S1"})
    return [JSON.encode(found) for found in sent]


def event(data: bytes) -> None:
    """Send an event of any writer to a peer of any coding."""
    (found,) = unpack_events([70], [data])
    if found is not None:
        sent = JSON.encode({"r": [found]})
        JSON.decode(sent)
        for coding in CODINGS:
            _in_coding(coding, sent, EVENT_SIZE_MAX)


def events() -> list[bytes]:
    """Return stored events."""
    values: list[Any] = [None, 1, "text", [1, 2.5, [True]], {"a": {"b": "\u00e9"}}]
    return [pack_event("DEMO", value, "2024-12-31T23:59:59.123456Z") for value in values]
