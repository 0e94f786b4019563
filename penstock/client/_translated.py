"""Errors of Flight and of sockets, as Penstock raises them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from penstock.client._knock import ConnectionLost
from penstock.client._reasons import without_context
from penstock.deadlines import DeadlineExceeded
from penstock.errors import PenstockError, ServerBusy, ServerError
from penstock.wire import BUSY, NOT_BEGUN, unpack_error

if TYPE_CHECKING:
    from penstock.client._connection import Channel

__all__ = ["translated"]

_LOST: Final = (flight.FlightUnavailableError, flight.FlightCancelledError, OSError)  # the last when writing fails


class translated(msgspec.Struct):  # noqa: N801 - reads like a word in a with statement
    """Turn what Flight raises into what Penstock does."""

    _channel: Channel

    def __enter__(self) -> None:
        """Do nothing: errors are translated at the end of the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise another error in place of one of Flight's."""
        if not isinstance(error, pa.ArrowException | OSError) or isinstance(error, PenstockError):
            return
        if isinstance(error, flight.FlightTimedOutError):
            raise DeadlineExceeded from error
        info = getattr(error, "extra_info", b"")
        if info == BUSY:
            raise ServerBusy(without_context(str(error))) from error
        if info == NOT_BEGUN:
            self._channel.is_lost = True
            lost = ConnectionLost()
            lost.is_begun = False
            raise lost from error
        if info:
            raise unpack_error(info) from error
        if isinstance(error, _LOST) or self._channel.is_lost:
            self._channel.is_lost = True
            raise ConnectionLost from error
        raise ServerError(str(error)) from error
