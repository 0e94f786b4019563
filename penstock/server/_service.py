"""The Flight service: a store, served to other processes.

Calls are actions, blocks are fetched with DoGet, and each client has one exchange open, its channel, for as long as it
is connected. What clients keep open ends with it. A client that connects again says which session it had before, so
that nothing of that is in its way.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from penstock.client._wire import END, NOT_BEGUN, PROTOCOL, column_of, pack, pack_error, unpack_call
from penstock.errors import BadArgument, NoSuchStream, PenstockError, ServerError
from penstock.server import _plain as plain
from penstock.server._operations import OPERATIONS, Operation
from penstock.server._permissions import Door, check, visitor_of
from penstock.server._session import Session, SessionOver
from penstock.server._writers import ClientWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server._permissions import Guard
    from penstock.stream import StreamStore

__all__ = ["FlightService"]

_BLOCKS: Final = pa.schema([pa.field("start", pa.int64()), pa.field("block", pa.binary())])
_HANG_UP_S: Final = 5.0
_READING: Final = Operation(lambda: None, "read")
_APPENDING: Final = Operation(lambda: None, "write", "open")
SESSIONS_MAX: Final = 1_000


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a store at a location, until :meth:`shutdown`."""

    def __init__(
        self,
        store: StreamStore,
        location: str,
        *,
        guard: Guard | None = None,
        tls: list[tuple[bytes, bytes]] | None = None,
        sessions_max: int = SESSIONS_MAX,
    ) -> None:
        self._store, self._sessions_max = store, sessions_max
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._is_over = False
        super().__init__(location, tls_certificates=tls, middleware=Door.at(guard))

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Call an operation."""
        session_id, args = _understood(action.body.to_pybytes())
        session = self._session(session_id)
        if action.type == END:
            self._end(session)
            return [pack([0, None])]
        with _told(session):
            operation = OPERATIONS.get(action.type)
            if operation is None:
                raise BadArgument(f"there is no operation {action.type!r}")
            session.visitor = visitor_of(context)  # what was granted may have changed
            check(session, session.visitor, action.type, operation, args)
            answer = operation.run(session, *args)
            return [pack([session.told, answer])]

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """Return the streams, for any Flight client."""
        del criteria
        with _told(None):
            yield from plain.flights(self._store, visitor_of(context))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return one stream, for any Flight client."""
        with _told(None):
            return plain.flight_of(self._store, visitor_of(context), plain.name_in(descriptor))

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Return blocks of a segment; or, for any Flight client, events."""
        if plain.is_ticket(ticket.ticket):
            with _told(None):
                return plain.read(self._store, visitor_of(context), ticket.ticket)
        what, session_id, args = _understood(ticket.ticket)
        session = self._session(session_id)
        with _told(session):
            if what != "blocks":
                raise BadArgument(f"there is nothing called {what!r} to get")
            check(session, visitor_of(context), what, _READING, args)
            return flight.GeneratorStream(_BLOCKS, self._blocks(session, *args))

    def _blocks(self, session: Session, stream: str, segment: int, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        with _told(session):
            try:
                found = self._store.segment(stream, segment)
            except (KeyError, NoSuchStream):  # which is for readers to tell: they know what they have missed
                raise BadArgument(f"there is no segment {segment} of stream {stream} any more") from None
            for start, view in found.views(offset, end):
                yield pa.record_batch([pa.array([start], pa.int64()), column_of(view)], _BLOCKS)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Append blocks: each message is one, and says how many follow that are acknowledged together with it.

        Or, for any Flight client, append events.
        """
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            with _told(None):
                count = plain.append(self._store, visitor_of(context), plain.name_in(descriptor), reader)
                writer.write(pa.py_buffer(str(count).encode()))
            return
        _, session_id, number = _understood(descriptor.command)
        session = self._session(session_id)
        with _told(session):
            client: ClientWriter = session.get(number, ClientWriter)
            for chunk in reader:
                check(session, visitor_of(context), "append", _APPENDING, [number])
                client.submit(chunk.data)
                if int.from_bytes(chunk.app_metadata.to_pybytes(), "big") == 0:
                    answer = client.acknowledge()
                    if session.is_over:
                        raise SessionOver("the session is over")
                    writer.write(pa.py_buffer(answer))

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Keep a client's channel open."""
        del reader
        session = Session(self._store, visitor_of(context), is_cancelled=context.is_cancelled)
        try:
            with _told(session):
                what, version, before = _understood(descriptor.command)
                if what != "session":
                    raise BadArgument("there is one exchange, called session")
                if version != PROTOCOL:
                    raise ServerError(f"this server speaks version {PROTOCOL} of the protocol, not {version}")
                if before in self._sessions and self._sessions[before].user == session.user:
                    self._end(self._sessions[before])
                self._begin(session)
                writer.write_metadata(pack(["welcome", session.id]))
                session.run(writer.write_metadata)
        finally:
            self._end(session)

    def _begin(self, session: Session) -> None:
        with self._lock:
            if self._is_over:
                raise SessionOver("the server ends")
            if len(self._sessions) >= self._sessions_max:
                raise ServerError(f"the server has {self._sessions_max} clients, as many as it takes: try again later")
            self._sessions[session.id] = session

    def _end(self, session: Session) -> None:
        session.end()
        self._sessions.pop(session.id, None)

    def _session(self, session_id: object) -> Session:
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is None or session.is_over:
            raise SessionOver("the session is over", extra_info=NOT_BEGUN)
        return session

    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._sessions)

    def shutdown(self) -> None:
        """Serve no more: clients are told, and have a moment to hang up; who is stuck does not hold up the end."""
        with self._lock:
            self._is_over = True
        for session in list(self._sessions.values()):
            self._end(session)
        last = threading.Thread(target=super().shutdown, name="penstock-shutdown", daemon=True)
        last.start()
        last.join(_HANG_UP_S)


def _understood(data: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    with _told(None):
        return unpack_call(data)


class _told:  # noqa: N801 - reads like a word in a with statement
    """Send errors to the client as they are; once its session is over only that."""

    def __init__(self, session: Session | None) -> None:
        self._session = session

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wrap it up."""
        if isinstance(error, PenstockError):
            if self._session is not None and self._session.is_over:
                raise SessionOver("the session is over") from error
            raise flight.FlightServerError(str(error), extra_info=pack_error(error)) from error
