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

from penstock import forks
from penstock.client._files import PlogFiles
from penstock.client._reasons import without_context
from penstock.deadlines import DeadlineExceeded, limit, run_locked, time_left
from penstock.errors import (
    ForkedHandle,
    OwnerStopped,
    PenstockError,
    ServerBusy,
    ServerError,
    StoreClosed,
    StoreUnreachable,
)
from penstock.ports import interruption_point, uninterrupted
from penstock.wire import BUSY, END, HERE, NOT_BEGUN, PROTOCOL, ByteBudget, pack, unpack, unpack_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Push = Callable[[list[Any]], None]

__all__ = ["Connection", "ConnectionLost", "Finder", "Session"]

_RETRY_S: Final = 0.02
_BUSY_S: Final = 0.05
_PATIENCE_S: Final = 30.0
_GOODBYE_S: Final = 5.0
_LOST: Final = (flight.FlightUnavailableError, flight.FlightCancelledError, OSError)  # the last when writing fails
_logger: Final = logging.getLogger("penstock.client")


class ConnectionLost(Exception):
    """The session ended while something was under way; nobody knows what became of it, unless it was not begun."""

    is_begun = True


class Finder(Protocol):
    """Who knows where the store is served; that may change."""

    def open(self) -> flight.FlightClient:
        """Return a client of the server; ``StoreUnreachable`` if there is none at the moment."""

    @property
    def address(self) -> str:
        """The store's address, for messages."""

    @property
    def patience_s(self) -> float:
        """How long to wait for it at first; who was there before is waited for longer."""

    def explained(self, reason: str) -> str:
        """Return why it cannot be reached, in words that say what to do."""

    def close(self) -> None:
        """Look no more."""


class Session:
    """One connection that works, until it does not. ``before`` is the session that it takes the place of, if any."""

    def __init__(
        self, client: flight.FlightClient, push: Push, lost: Callable[[Session], None], before: str | None
    ) -> None:
        forks.guard(self)
        self.client: Final = client
        self.is_lost = False
        self._push, self._lost = push, lost
        self.reading: Final = set[Any]()  # what is being sent
        self._heard = 0
        self._change = threading.Condition()  # of what was heard, and whether it is lost
        with translated(self):
            hello = flight.FlightDescriptor.for_command(pack(["session", PROTOCOL, before]))
            self._writer, self._reader = self.client.do_exchange(hello)
            try:
                kind, self.id, inflight = self._receive()
            except BaseException:
                self._let_go()  # or Arrow complains, on the standard error, that nobody did
                raise
        assert kind == "welcome", "what else"
        self.budget: Final = ByteBudget(inflight)  # for blocks that are sent and not acknowledged, of all writers
        self._listener = threading.Thread(target=self._listen, name="penstock-client", daemon=True)
        self._listener.start()

    def _receive(self) -> Any:  # noqa: ANN401 - whatever was sent
        try:
            metadata = self._reader.read_chunk().app_metadata
        except StopIteration:
            metadata = None
        if metadata is None:
            raise ConnectionLost
        return unpack(metadata.to_pybytes())

    def _listen(self) -> None:
        """Pass on what the server says. This thread never calls the server: who does waits for it, see :meth:`call`."""
        try:
            with translated(self):
                while True:
                    self._push(self._receive())
                    with self._change:
                        self._heard += 1
                        self._change.notify_all()
        except ConnectionLost:
            pass
        except Exception:
            _logger.exception("the channel broke")
        finally:
            with self._change:
                self.is_lost = True
                self._change.notify_all()
            self._lost(self)

    @uninterrupted
    def call(self, name: str, *args: object) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation; ``ConnectionLost`` if the session ends.

        Returns when everything was passed on that the server told before it answered: what a call has brought about is
        known here when it is over.
        """
        answer = self._answer(flight.Action(name, pack([self.id, list(args)])))
        told, value = unpack(answer.body.to_pybytes())
        if self._heard < told:
            with self._change:
                self._change.wait_for(lambda: self.is_lost or self._heard >= told, time_left())
            if self._heard < told:
                raise ConnectionLost if self.is_lost else DeadlineExceeded
        return value

    def _answer(self, action: flight.Action) -> flight.Result:
        """Return what the server answers, which may be too busy for a while."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with translated(self):
                    (answer,) = self.client.do_action(action, _options())
            except ServerBusy:
                if time.monotonic() > deadline:
                    raise
                if time_left() == 0:
                    raise DeadlineExceeded from None
                interruption_point()
                time.sleep(_BUSY_S)
            else:
                return answer

    @uninterrupted
    def close(self) -> None:
        """End the session; nothing of it is left on the server then."""
        action = flight.Action(END, pack([self.id, []]))
        with suppress(ConnectionLost, DeadlineExceeded, PenstockError), translated(self):
            list(self.client.do_action(action, flight.FlightCallOptions(timeout=_GOODBYE_S)))
            self._listener.join(_GOODBYE_S)
        self.hang_up()

    def end_reading(self, reader: flight.FlightStreamReader) -> None:
        """Have no more sent: what is broken off would be, for as long as anybody holds on to it."""
        self.reading.discard(reader)
        reader.cancel()

    def hang_up(self) -> None:
        """Let go of a session that is over, or lost."""
        self.is_lost = True
        with suppress(pa.ArrowException, OSError):
            self._reader.cancel()
        self._listener.join(_GOODBYE_S)
        self._let_go()

    def _let_go(self) -> None:
        with suppress(pa.ArrowException, OSError):
            self._writer.close()
        with suppress(pa.ArrowException, OSError):
            self.client.close()


class Connection:
    """Calls a server, wherever it is just now."""

    def __init__(self, finder: Finder, push: Push, lost: Callable[[Session], None]) -> None:
        forks.guard(self)
        self._finder, self._push, self._lost = finder, push, lost
        self._lock = threading.Lock()
        self._reach_lock = threading.Lock()  # held while it is found out whether files can be reached
        self._reached: tuple[Session | None, PlogFiles | None] = (None, None)  # in which session, and what
        self._session: Session | None = None
        self._tried_since: float | None = None  # since when there is none, though it was asked for
        self._closed = False

    @property
    def session(self) -> Session:
        """The session there is, or a new one."""
        session = self._session
        if session is not None and not session.is_lost and not self._closed:
            return session
        return run_locked(self._lock, self._found_session)

    def _found_session(self) -> Session:
        if self._closed:
            raise StoreClosed("the store")
        if self._session is None or self._session.is_lost:
            self._session = self._connect(self._session)
            self._tried_since = None
        return self._session

    def _connect(self, before: Session | None) -> Session:
        """Connect, for as long as patience lasts: whoever serves the store may just be changing."""
        forks.check_network()
        if before is not None:
            before.hang_up()
        begun = self._tried_since = self._tried_since or time.monotonic()
        deadline = begun + (self._finder.patience_s if before is None else _PATIENCE_S)
        while True:
            try:
                client = self._finder.open()
                if before is not None:
                    _knock(client)
                return Session(client, self._push, self._lost, None if before is None else before.id)
            except (StoreUnreachable, ConnectionLost) as error:
                if self._closed:
                    raise StoreClosed("the store") from error
                if before is None and isinstance(error, OwnerStopped):
                    raise  # somebody has to do something
                if time.monotonic() > deadline:
                    reason = self._finder.explained(_reason(error.__cause__ or error))
                    raise StoreUnreachable(self._finder.address, reason=reason) from error
                if time_left() == 0:
                    raise DeadlineExceeded from error
                interruption_point()
                time.sleep(_RETRY_S)
            except ServerBusy as error:
                if self._closed:
                    raise StoreClosed("the store") from error
                if time.monotonic() > begun + _PATIENCE_S:
                    raise
                interruption_point()
                time.sleep(_BUSY_S)

    def call(self, name: str, *args: object, again: bool = False) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation; with ``again`` once more if the connection is lost on the way."""
        while True:
            session = self.session
            try:
                return session.call(name, *args)
            except ConnectionLost as error:
                if error.is_begun and not again:
                    raise self.unknown(f"whether {name} was done is not known") from error

    def unknown(self, what: str) -> StoreUnreachable:
        """Return what to raise when the connection was lost, and nobody knows what became of something."""
        return StoreUnreachable(self._finder.address, reason=f"the connection was lost, and {what}")

    def get(self, session: Session, what: str, *args: object) -> Iterator[pa.RecordBatch]:
        """Return the batches that an operation gives."""
        ticket, until = flight.Ticket(pack([what, session.id, list(args)])), limit()
        with translated(session):
            reader = session.client.do_get(ticket, _options())
            session.reading.add(reader)
            try:
                for chunk in reader:
                    yield chunk.data
                    if limit() < until:
                        raise DeadlineExceeded  # who goes on has less time than who began: it has to ask anew
            finally:
                with suppress(ForkedHandle):  # in a child it is the parent's
                    session.end_reading(reader)

    def files(self, stream: str, segment: int, offset: int) -> PlogFiles | None:
        """Return the files of the store if they are within our reach, which is found out once a session."""
        session = self.session
        if self._reached[0] is not session:
            run_locked(self._reach_lock, lambda: self._find_files(session, stream, segment, offset))
        return self._reached[1]

    def _find_files(self, session: Session, stream: str, segment: int, offset: int) -> None:
        if self._reached[0] is not session:
            self._reached = session, _reached(session, stream, segment, offset)

    def give_up_files(self) -> None:
        """Have everything sent until the session ends."""
        self._reached = self.session, None

    def close(self) -> None:
        """End the session, and begin no other."""
        self._closed = True  # first: who tries to connect stops trying
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()


def _options() -> flight.FlightCallOptions | None:
    """Return how long a call may take."""
    left = time_left()
    return None if left is None else flight.FlightCallOptions(timeout=left)


def _knock(client: flight.FlightClient) -> None:
    """Return when a server answers; a channel could wait for one that does not for ever."""
    left = time_left()
    options = flight.FlightCallOptions(timeout=_PATIENCE_S if left is None else left)
    try:
        list(client.do_action(flight.Action(HERE, pack(["", []])), options))
    except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
        if error.extra_info not in {NOT_BEGUN, BUSY}:
            client.close()
            raise ConnectionLost from error
    except pa.ArrowException:
        pass  # who opens the channel is told, too


def _reached(session: Session, stream: str, segment: int, offset: int) -> PlogFiles | None:
    """Look for the file that the server makes for us."""
    shown = session.call("access.probe", stream, segment, offset)
    if shown is None:
        return None
    number, path, content, place = shown
    files = PlogFiles.reached(path, content, place)
    session.call("access.end", number)
    return files


def _reason(error: BaseException) -> str:
    """Return what made a connection fail."""
    return error.reason if isinstance(error, StoreUnreachable) else without_context(str(error))


class translated:  # noqa: N801 - reads like a word in a with statement
    """Turn what Flight raises into what Penstock does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise another error in place of one of Flight's."""
        if not isinstance(error, pa.ArrowException | OSError) or isinstance(error, PenstockError):
            return
        if isinstance(error, flight.FlightTimedOutError):
            raise DeadlineExceeded from error
        told = getattr(error, "extra_info", b"")
        if told == BUSY:
            raise ServerBusy(without_context(str(error))) from error
        if told == NOT_BEGUN:
            self._session.is_lost = True
            lost = ConnectionLost()
            lost.is_begun = False
            raise lost from error
        if told:
            raise unpack_error(told) from error
        if isinstance(error, _LOST) or self._session.is_lost:
            self._session.is_lost = True
            raise ConnectionLost from error
        raise ServerError(str(error)) from error
