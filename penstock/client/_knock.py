"""Whether a server answers at all: asked before anything that would wait for it for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import astuple
from pyarrow import flight

from penstock.deadlines import time_left
from penstock.wire import BUSY, NOT_BEGUN, pack
from penstock.wire.operations import sessions

if TYPE_CHECKING:
    from penstock.wire.operations import Operation

__all__ = ["ConnectionLost", "action_of", "answering", "knock"]


class ConnectionLost(Exception):
    """The channel was lost during a call; whether the call was done is unknown, unless it was not begun."""

    is_begun = True


def action_of(session_id: str, call: Operation) -> flight.Action:
    """Return an operation of a session as Flight sends it."""
    return flight.Action(call.operation, pack([session_id, astuple(call)]))


def answering(client: flight.FlightClient, seconds: float, *, is_strict: bool = False) -> flight.FlightClient:
    """Return the client when its server has answered; otherwise close it. A channel could wait for ever."""
    try:
        knock(client, seconds, is_strict=is_strict)
    except BaseException:
        client.close()
        raise
    return client


def knock(client: flight.FlightClient, seconds: float, *, is_strict: bool = False) -> None:
    """Return when a server answers; ``ConnectionLost`` if it does not, or, if strict, is not a server of Penstock."""
    left = time_left()
    options = flight.FlightCallOptions(timeout=seconds if left is None else min(left, seconds))
    try:
        list(client.do_action(action_of("", sessions.Here()), options))
    except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
        if error.extra_info not in {NOT_BEGUN, BUSY}:
            raise ConnectionLost from error
    except pa.ArrowException as error:
        if is_strict and not getattr(error, "extra_info", b""):
            raise ConnectionLost from error
        # else opening the channel raises it, too
