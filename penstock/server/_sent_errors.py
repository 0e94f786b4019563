"""How errors of calls are sent to clients: those of Penstock as they are, of others nothing that shows the inside."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from penstock.errors import BadArgument, PenstockError, ServerError
from penstock.server._session import FENCED, SessionOver
from penstock.wire import pack_refusal, unpack_call

if TYPE_CHECKING:
    from penstock.server._session import Session

__all__ = ["all_errors_sent", "errors_sent", "understood"]

_logger: Final = logging.getLogger("penstock.server")


def understood(data: bytes | memoryview | None, form: Any, size_max: float = math.inf) -> Any:  # noqa: ANN401
    """Return what a client says; None is what Flight has for the command of a descriptor that is none."""
    with errors_sent(None):
        if data is None:
            raise BadArgument("invalid descriptor: use a command, or the path of a stream to append events")
        if len(data) > size_max:
            raise BadArgument(f"a ticket or a descriptor of {len(data)} bytes: at most {size_max}")
        return unpack_call(data, form)


def _refusal(error: PenstockError) -> flight.FlightServerError:
    text, packed = pack_refusal(error)
    return flight.FlightServerError(text, extra_info=packed)


class all_errors_sent:  # noqa: N801 - as the next one
    """Send Penstock's errors as they are; of others send nothing that shows the inside of the server."""

    def __enter__(self) -> None:
        """Do nothing: errors are translated at the end of the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise every error as one of Flight's; log what is not Penstock's."""
        if not isinstance(error, Exception) or isinstance(error, flight.FlightError):
            return
        if isinstance(error, PenstockError):
            sent = error
        else:
            sent = ServerError("the server does not understand this call, or failed at it: see its log")
            is_usual = isinstance(error, pa.ArrowException | OSError)  # when a client goes in the middle of something
            _logger.log(logging.DEBUG if is_usual else logging.ERROR, "a call failed", exc_info=error)
        raise _refusal(sent) from error


class errors_sent(msgspec.Struct):  # noqa: N801 - reads like a word in a with statement
    """Send errors to the client as they are; once its session is over only that."""

    _session: Session | None

    def __enter__(self) -> None:
        """Do nothing: errors are translated at the end of the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise an error of Penstock as one of Flight's."""
        if isinstance(error, PenstockError):
            if self._session is not None and self._session.is_over:
                raise SessionOver("the session is over") from error
            if isinstance(error, FENCED):  # for the client it is as if the connection were lost
                raise SessionOver("the store has a new owner") from error
            raise _refusal(error) from error
