"""The Flight service: a store, served to other processes.

Calls are actions, blocks are fetched with DoGet, and each client has one exchange open, its channel, for as long as it
is connected. What clients keep open ends with it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from penstock.client._wire import ENDED, PROTOCOL, pack, pack_error, unpack
from penstock.errors import BadArgument, PenstockError, ServerError
from penstock.server._operations import OPERATIONS
from penstock.server._session import Session
from penstock.server._writers import ClientWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import StreamStore
    from penstock.stream._segment import PendingBlock

__all__ = ["FlightService"]

_BLOCKS: Final = pa.schema([pa.field("start", pa.int64()), pa.field("block", pa.binary())])


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a store at a location, until :meth:`shutdown`."""

    def __init__(self, store: StreamStore, location: str) -> None:
        self._store = store
        self._sessions: dict[str, Session] = {}
        super().__init__(location)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Call an operation."""
        del context
        with _told():
            session_id, args = unpack(action.body.to_pybytes())
            operation = OPERATIONS.get(action.type)
            if operation is None:
                raise BadArgument(f"there is no operation {action.type!r}")
            return [pack(operation.run(self._session(session_id), *args))]

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Return blocks of a segment."""
        del context
        with _told():
            what, session_id, args = unpack(ticket.ticket)
            self._session(session_id)
            if what != "blocks":
                raise BadArgument(f"there is nothing called {what!r} to get")
            return flight.GeneratorStream(_BLOCKS, self._blocks(*args))

    def _blocks(self, stream: str, segment: int, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        with _told():
            try:
                found = self._store.segment(stream, segment)
            except KeyError:
                raise BadArgument(f"there is no segment {segment} of stream {stream} any more") from None
            for start, view in found.views(offset, end):
                bounds = pa.py_buffer(bytes(4) + len(view).to_bytes(4, "little"))
                block = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(view)])
                yield pa.record_batch([pa.array([start], pa.int64()), block], _BLOCKS)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Append blocks: each message is one, and says how many follow that are acknowledged together with it."""
        del context
        with _told():
            _, session_id, number = unpack(descriptor.command)
            client: ClientWriter = self._session(session_id).get(number, ClientWriter)
            pending: list[PendingBlock | None] = []
            error: PenstockError | None = None
            for chunk in reader:
                if error is None:
                    try:
                        pending.append(client.submit(chunk.data))
                    except PenstockError as told:
                        error = told
                if int.from_bytes(chunk.app_metadata.to_pybytes(), "big") == 0:
                    writer.write(pa.py_buffer(_acknowledge(pending, error)))
                    pending, error = [], None

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Keep a client's channel open."""
        del context
        with _told():
            if descriptor.command != b"session":
                raise BadArgument("there is one exchange, called session")
            kind, version = _receive(reader)
            if kind != "hello" or version != PROTOCOL:
                raise ServerError(f"this server speaks version {PROTOCOL} of the protocol, not {version}")
            session = Session(self._store, "")
            self._sessions[session.id] = session
            writer.write_metadata(pack(["welcome", session.id]))
            listener = threading.Thread(target=self._listen, args=(session, reader), name="penstock-session")
            listener.start()
            try:
                session.run(writer.write_metadata)
            finally:
                self._end(session)
                listener.join()

    def _listen(self, session: Session, reader: flight.MetadataRecordBatchReader) -> None:
        """Do what the client says, until it says no more."""
        try:
            while True:
                what, stream, segment = _receive(reader)
                (session.watch if what == "watch" else session.unwatch)((stream, segment))
        except (StopIteration, pa.ArrowException, PenstockError):
            self._end(session)

    def _end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        session.end()

    def _session(self, session_id: str) -> Session:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise flight.FlightUnavailableError("the session is over") from None

    def shutdown(self) -> None:
        """Serve no more."""
        for session in list(self._sessions.values()):
            self._end(session)
        super().shutdown()


def _acknowledge(pending: list[PendingBlock | None], error: PenstockError | None) -> bytes:
    """Return where blocks begin that are durable, or what made one of them fail."""
    try:
        for one in pending:
            if one is not None:
                one.result()
    except PenstockError as told:
        error = error or told
    if error is not None:
        return pack([[], pack_error(error)])
    return pack([[ENDED if one is None else one.start for one in pending], None])


def _receive(reader: flight.MetadataRecordBatchReader) -> Any:  # noqa: ANN401 - whatever was sent
    metadata = reader.read_chunk().app_metadata
    if metadata is None:
        raise StopIteration
    return unpack(metadata.to_pybytes())


class _told:  # noqa: N801 - reads like a word in a with statement
    """Send errors to the client as they are."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wrap it up."""
        if isinstance(error, PenstockError):
            raise flight.FlightServerError(str(error), extra_info=pack_error(error)) from error
