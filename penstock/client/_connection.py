"""The connection to a server: calls and their answers, and a channel on which the server tells what happens.

A connection is a session: the server keeps what a client has open there (writers, readers, transactions) for as long
as the channel lasts. When it is lost, whoever calls next connects anew; what was open in the session is opened again by
those who need it, and a call that was under way is made again only where that changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyarrow import flight

from penstock.client._files import PlogFiles
from penstock.client._wire import PROTOCOL, pack, unpack, unpack_error
from penstock.errors import ServerError, StoreClosed, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Push = Callable[[list[Any]], None]

__all__ = ["Connection", "ConnectionLost", "Finder", "Session"]

_RETRY_S: Final = 0.02
_PATIENCE_S: Final = 30.0
_LOST: Final = (flight.FlightUnavailableError, flight.FlightCancelledError)
_logger: Final = logging.getLogger("penstock.client")


class ConnectionLost(Exception):
    """The session ended while something was under way; nobody knows what became of it."""


class Finder(Protocol):
    """Who knows where the store is served; that may change."""

    def find(self) -> str:
        """Return a location; ``StoreUnreachable`` if there is none at the moment."""

    @property
    def address(self) -> str:
        """The store's address, for messages."""

    @property
    def is_local(self) -> bool:
        """Whether its files may be within our reach."""

    def close(self) -> None:
        """Look no more."""


class Session:
    """One connection that works, until it does not."""

    def __init__(self, location: str, push: Push, ended: Callable[[Session], None]) -> None:
        self.client: Final = flight.connect(location)
        self.is_lost = False
        self._push, self._ended = push, ended
        try:
            self._writer, self._reader = self.client.do_exchange(flight.FlightDescriptor.for_command(b"session"))
            self._send_lock = threading.Lock()
            self.send(["hello", PROTOCOL])
            kind, self.id = self._receive()
            assert kind == "welcome", "what else"
        except BaseException:
            self.client.close()
            raise
        threading.Thread(target=self._listen, name="penstock-client", daemon=True).start()

    def send(self, message: list[Any]) -> None:
        """Send a message on the channel; if the session has ended, nobody hears it."""
        with self._send_lock, suppress(*_LOST, pa.ArrowException):
            self._writer.write_metadata(pack(message))

    def _receive(self) -> Any:  # noqa: ANN401 - whatever was sent
        return unpack(self._reader.read_chunk().app_metadata.to_pybytes())

    def _listen(self) -> None:
        try:
            while True:
                self._push(self._receive())
        except (StopIteration, pa.ArrowException, flight.FlightError, OSError, AttributeError):
            self.is_lost = True
            self._ended(self)
        except Exception:
            self.is_lost = True
            _logger.exception("the channel broke")
            self._ended(self)

    def close(self) -> None:
        """End the session."""
        with suppress(Exception), self._send_lock:
            self._writer.done_writing()
        with suppress(Exception):
            self.client.close()


class Connection:
    """Calls a server, wherever it is just now."""

    def __init__(self, finder: Finder, push: Push) -> None:
        self._finder, self._push = finder, push
        self.files: PlogFiles | None = PlogFiles() if finder.is_local else None
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._closed = False

    @property
    def session(self) -> Session:
        """The session there is, or a new one."""
        with self._lock:
            if self._closed:
                raise StoreClosed("the store")
            if self._session is None or self._session.is_lost:
                self._session = self._connect()
            return self._session

    def _connect(self) -> Session:
        """Connect, for as long as patience lasts: whoever serves the store may just be changing."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return Session(self._finder.find(), self._push, self._lose)
            except (
                StoreUnreachable,
                flight.FlightUnavailableError,
                flight.FlightCancelledError,
                StopIteration,
            ) as error:
                if time.monotonic() > deadline:
                    raise StoreUnreachable(self._finder.address, reason=str(error)) from error
                time.sleep(_RETRY_S)

    def _lose(self, session: Session) -> None:
        self._push(["lost", session.id])

    def call(self, name: str, *args: object, again: bool = False) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation; with ``again`` once more if the connection is lost on the way."""
        while True:
            session = self.session
            try:
                return self.call_in(session, name, *args)
            except ConnectionLost as error:
                if not again:
                    reason = f"the connection was lost, and whether {name} was done is not known"
                    raise StoreUnreachable(self._finder.address, reason=reason) from error

    def call_in(self, session: Session, name: str, *args: object) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation in a session; ``ConnectionLost`` if that ends."""
        action = flight.Action(name, pack([session.id, list(args)]))
        with translated(session):
            (answer,) = session.client.do_action(action)
            return unpack(answer.body.to_pybytes())

    def get(self, session: Session, what: str, *args: object) -> Iterator[pa.RecordBatch]:
        """Return the batches that an operation gives."""
        ticket = flight.Ticket(pack([what, session.id, list(args)]))
        with translated(session):
            for chunk in session.client.do_get(ticket):
                yield chunk.data

    def close(self) -> None:
        """End the session, and begin no other."""
        with self._lock:
            self._closed, session, self._session = True, self._session, None
        if session is not None:
            session.close()


class translated:  # noqa: N801 - reads like a word in a with statement
    """Turn what Flight raises into what Penstock does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise another error in place of one of Flight's."""
        if isinstance(error, _LOST):
            self._session.is_lost = True
            raise ConnectionLost from error
        if isinstance(error, flight.FlightError | pa.ArrowException):
            told = getattr(error, "extra_info", b"")
            raise unpack_error(told) if told else ServerError(str(error)) from error
