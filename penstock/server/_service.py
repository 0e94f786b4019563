"""The Flight service: a store, served to other processes.

Calls are actions, blocks are fetched with DoGet, and each client has one exchange open, its channel, for as long as it
is connected. Everything that the client has open ends with it. A client that reconnects sends the id of its last
session, so that nothing of that is in its way.
"""

from __future__ import annotations

import logging
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from msgspec.structs import astuple
from pyarrow import flight

from penstock import forks
from penstock.errors import BadArgument, NoSuchStream, NotAuthenticated, PenstockError, ServerError
from penstock.model import shown
from penstock.server import _plain as plain
from penstock.server._appends import append_blocks, append_shared, message_size
from penstock.server._block_port import BlockPort, BlockRules
from penstock.server._blocks import Blocks, NewBlocks
from penstock.server._connections import TOO_LARGE, TOO_MUCH, TOO_MUCH_IN_ALL, ConnectionWatch, close_all
from penstock.server._limits import UNLIMITED, Limits, MessageLimit, QuotaUse
from penstock.server._operations import HANDLERS
from penstock.server._periodic import Periodic
from penstock.server._permissions import AuthMiddleware, asking, check, hold, principal_of, user_of
from penstock.server._quotas import Quotas, StoredQuotas
from penstock.server._repositories import REPOSITORY_BLOCKS, Repositories
from penstock.server._sent_errors import all_errors_sent, errors_sent, understood
from penstock.server._session import Session, SessionOver
from penstock.stream import READ_SCHEMA
from penstock.stream.format import check_arrow
from penstock.wire import BLOCKS, NOT_BEGUN, PROTOCOL, operations, pack
from penstock.wire.operations import repositories, sessions, streams, writers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Iterator

    from penstock.server._permissions import Guard, Principal
    from penstock.stream import Engine
    from penstock.stream.segment import Segment

__all__ = ["FlightService"]

_HANG_UP_S: Final = 5.0
_CREDENTIALS_S: Final = 1.0  # how soon a client is disconnected whose password or token has ended
_UNIX: Final = "grpc+unix://"
_Action = tuple[str, list[Any]]  # a session, and the arguments
_Ticket = tuple[Literal["blocks", "repository"], str, list[Any]]
_Append = tuple[Literal["append", "append.shared"], str, Any]
_Exchange = tuple[Literal["session"], Any, Any]
_logger: Final = logging.getLogger("penstock.server")


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a store at a location, until :meth:`shutdown`."""

    def __init__(
        self,
        store: Engine,
        location: str,
        block_listener: socket.socket | None = None,
        *,
        guard: Guard | None = None,
        tls: list[tuple[bytes, bytes]] | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        forks.check_network()
        forks.guard(self)
        self._store, self._limits = store, limits
        self._quotas, self._messages = Quotas(limits), MessageLimit(limits.max_message_bytes)
        self._sent_bytes = 0  # to readers
        self._waits_of_ended = 0  # how often ended sessions had to wait, because they had too much under way
        self._stored: StoredQuotas | None = None
        self._connections = ConnectionWatch(limits)
        self._at = location.removeprefix(_UNIX) if location.startswith(_UNIX) else None
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._is_over = False
        self._blocks_of = Blocks()
        self._repositories = Repositories(store)
        logins = None if guard is None else partial(_log_in, self._connections, guard)
        middleware = {} if guard is None and limits is UNLIMITED else AuthMiddleware.at(logins)
        super().__init__(location, tls_certificates=tls, middleware=middleware)
        rules = BlockRules(self._session_named, self._blocks_asked, self._quotas, self._messages, limits)
        self._block_port = None if block_listener is None else BlockPort(block_listener, rules)
        self._watches: list[ConnectionWatch | Periodic] = []
        if limits is not UNLIMITED:
            self._stored = StoredQuotas(store, self._quotas)
            self._connections.start(self.port)
            self._watches.append(self._connections)
            self._watches.append(Periodic(self._end_silent, "penstock-silence"))
        if guard is not None:
            self._watches.append(Periodic(self._end_revoked, "penstock-credentials", every_s=_CREDENTIALS_S))

    def release_in_child(self) -> None:
        """Let it not be shut down when the child ends, which would wait for threads that are not there."""
        for finalizer in (found.__callback__ for found in weakref.getweakrefs(self)):
            if isinstance(finalizer, weakref.finalize):
                finalizer.detach()

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Call an operation."""
        with all_errors_sent():
            hold(context, self._quotas["calls"])
            return self._act(context, action)

    def _act(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        self._count(context, action.body.size)
        with errors_sent(None):
            operations.check_form(action.type, action.body)
        session_id, args = understood(action.body, _Action)
        session = self._session(session_id)
        with errors_sent(session):
            call = operations.parse(action.type, args)
            check(session, principal_of(context), call)
            if isinstance(call, sessions.End):
                self._end(session)
            if isinstance(call, sessions.End | sessions.Here):
                return [pack([0, None])]
            handler = HANDLERS.get(type(call))
            if handler is None:
                raise BadArgument(f"{call.operation} is not an action")
            answer = handler(session, *astuple(call))
            return [pack([session.notified, answer])]

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """Return the streams, for any Flight client."""
        with all_errors_sent():
            hold(context, self._quotas["calls"])
            hold(context, self._quotas["reads"])  # all of the answer is in memory until it is sent
            self._count(context, len(criteria))
            yield from plain.flights(self._store, principal_of(context))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return one stream, for any Flight client."""
        with all_errors_sent():
            hold(context, self._quotas["calls"])
            self._count(context)
            return plain.flight_of(self._store, principal_of(context), plain.name_in(descriptor))

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Return blocks of a segment; or, for any Flight client, events."""
        with all_errors_sent():
            hold(context, self._quotas["calls"])
            return self._stream(context, ticket)

    def _stream(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        self._count(context, len(ticket.ticket))
        hold(context, self._quotas["reads"])
        if plain.is_ticket(ticket.ticket):
            with errors_sent(None):
                found = plain.read(self._store, asking(context), ticket.ticket)
                return flight.GeneratorStream(READ_SCHEMA, self._sent(found))
        operation, session_id, args = understood(ticket.ticket, _Ticket, operations.SHORT_SIZE)
        session = self._session(session_id)
        with errors_sent(session):
            ask = asking(context)
            if operation == "repository":
                hold(context, self._quotas["searches"])  # what was found is in memory until it is sent
                wanted = repositories.GetRepositoryStream.of(args)
                check(session, ask(), wanted)
                found = self._repositories.batches(wanted, lambda: check(session, ask(), wanted))
                return flight.GeneratorStream(REPOSITORY_BLOCKS, self._sent(_errors_of(session, found)))
            call = streams.GetBlocks.of(args)
            check(session, ask(), call)
            return flight.GeneratorStream(BLOCKS, self._sent(self._blocks(session, ask, call)))

    def _blocks(
        self, session: Session, ask: Callable[[], Principal], call: streams.GetBlocks
    ) -> Iterator[pa.RecordBatch]:
        with errors_sent(session):
            try:
                found = self._store.segments.get(call.stream, call.segment)
            except (KeyError, NoSuchStream):  # readers raise it: they know what they have missed
                raise BadArgument(f"there is no segment {call.segment} of stream {call.stream} any more") from None
            for batch in self._blocks_of.between(found, call.offset, call.end):
                check(session, ask(), call)  # again: it may take long, and what was granted may be revoked
                yield batch

    def _sent(self, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
        with all_errors_sent():
            for batch in batches:
                self._count_sent(batch.nbytes)
                yield batch

    def _new_blocks(self, segment: Segment, first: int, tail: int) -> NewBlocks:
        blocks = self._blocks_of.new(segment, first, tail)
        self._count_sent(sum(len(block) for *_, block in blocks))
        return blocks

    def _count_sent(self, size: int) -> None:
        with self._lock:
            self._sent_bytes += size

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Append blocks; or, for any Flight client, events."""
        with all_errors_sent():
            hold(context, self._quotas["calls"])
            self._append(context, descriptor, reader, writer)

    def _append(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            with errors_sent(None):
                name, chunks = plain.name_in(descriptor), self._counted(context, reader)
                count = plain.append(self._store, asking(context), name, chunks, self._messages)
                writer.write(pa.py_buffer(str(count).encode()))
            return
        operation, session_id, number = understood(descriptor.command, _Append, operations.SHORT_SIZE)
        session, chunks = self._session(session_id), self._counted(context, reader)

        def may_append(call: writers.AppendBlocks) -> None:
            check(session, principal_of(context), call)

        with errors_sent(session):
            if operation == writers.AppendShared.operation:
                append_shared(session, chunks, may_append, writer)
            else:
                append_blocks(session, number, chunks, may_append, writer)

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Keep a client's channel open."""
        del reader
        with all_errors_sent():
            hold(context, self._quotas["calls"])
            self._keep_open(context, descriptor, writer)

    def _keep_open(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        self._count(context)
        limits, user = self._limits, user_of(context)
        session = Session(
            self._store,
            asking(context),
            quotas=self._quotas,
            owner=user,
            is_cancelled=context.is_cancelled,
            inflight=limits.max_inflight_bytes,
            silent_s=limits.idle_timeout_s,
            new_blocks=self._new_blocks,
            server_ends=lambda: self._is_over,
        )
        try:
            with errors_sent(session):
                _, version, before = understood(descriptor.command, _Exchange, operations.SHORT_SIZE)
                if version != PROTOCOL:
                    raise ServerError(f"this server speaks version {PROTOCOL} of the protocol, not {shown(version)}")
                call = sessions.BeginSession.of([version, before])
                older = None if call.before is None else self._sessions.get(call.before)
                if older is not None and older.user == session.user:
                    self._end(older)
                hold(context, self._quotas["clients"])
                self._begin(session)
                port = self._block_port
                access = None if port is None else [port.port, session.block_name, session.block_key]
                writer.write_metadata(pack(["welcome", session.id, limits.max_inflight_bytes, access]))
                session.run(writer.write_metadata)
        finally:
            self._end(session)

    def _begin(self, session: Session) -> None:
        with self._lock:
            if self._is_over:
                raise SessionOver("the server ends")
            self._sessions[session.id] = session

    def _end(self, session: Session) -> None:
        if self._block_port is not None:
            self._block_port.hang_up(session)
        session.end()
        with self._lock:
            if self._sessions.pop(session.id, None) is not None:
                self._waits_of_ended += session.budget.refused

    def _session_named(self, name: str) -> Session | None:
        """Return the session that has this name at the port for blocks."""
        found = (session for session in list(self._sessions.values()) if session.block_name == name)
        return next(found, None)

    def _blocks_asked(self, session: Session, call: streams.GetBlocks) -> Generator[pa.RecordBatch]:
        """Return blocks for the port for blocks."""
        with errors_sent(session):
            check(session, session.ask(), call)
        return self._sent(self._blocks(session, session.ask, call))

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None or session.is_over:
            raise SessionOver("the session is over", extra_info=NOT_BEGUN)
        session.note_seen()
        return session

    def _end_revoked(self) -> None:
        """End the sessions of clients whose password or token is not valid any more."""
        for session in list(self._sessions.values()):
            try:
                session.ask()
            except NotAuthenticated as error:
                _logger.info("ending a session", extra={"user": session.user, "reason": str(error)})
                self._end(session)
            except PenstockError:
                pass  # it cannot be checked now; each call is checked by itself

    def _end_silent(self) -> None:
        """End the sessions of clients that are gone, though their channels are not broken."""
        for session in list(self._sessions.values()):
            if session.is_silent():
                self._end(session)

    def _count(self, context: flight.ServerCallContext, size: int = 0) -> None:
        """Count a message that was accepted; refuse one that is too large."""
        asking(context)  # first: only calls of users that are authenticated count
        if self._limits is not UNLIMITED:
            self._connections.note(context.peer(), size, lambda: user_of(context) or "")
            with errors_sent(None):
                self._messages.check(size)

    def _counted(
        self, context: flight.ServerCallContext, reader: flight.MetadataRecordBatchReader
    ) -> Iterator[flight.FlightStreamChunk]:
        """Return the messages of a stream, checked and counted."""
        self._count(context)
        for chunk in reader:
            if chunk.data is not None:
                check_arrow(chunk.data)
            self._count(context, message_size(chunk))
            yield chunk

    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._sessions)

    def sent_bytes(self) -> int:
        """Return how many bytes of events were sent to readers."""
        return self._sent_bytes

    def quotas(self) -> list[QuotaUse]:
        """Return the limit and the use of each kind of thing that is limited."""
        if self._stored is None:
            return []
        limits, closed, messages = self._limits, self._connections.closed, self._messages
        with self._lock:
            budgets, waits = [session.budget for session in self._sessions.values()], self._waits_of_ended
        used = max((budget.used for budget in budgets), default=0)
        waits += sum(budget.refused for budget in budgets) + closed[TOO_MUCH] + closed[TOO_MUCH_IN_ALL]
        refused = messages.refused + closed[TOO_LARGE]
        return [
            *self._stored.uses(),
            QuotaUse("message_bytes", limits.max_message_bytes, messages.largest, refused),
            QuotaUse("inflight_bytes", limits.max_inflight_bytes, used, waits),
        ]

    def cut_off(self) -> None:
        """Answer no more, at once: another server may own the store. The service is to be shut down next."""
        with self._lock:
            self._is_over = True
        for session in list(self._sessions.values()):
            session.cut_off()
            if self._block_port is not None:
                self._block_port.hang_up(session)

    def shutdown(self) -> None:
        """End the service: clients are notified, and have a moment to hang up. Then their connections are closed.

        Otherwise a client that does not read its answer would keep a thread, and this process, running for ever.
        """
        with self._lock:
            self._is_over = True
        for watch in self._watches:
            watch.end()
        for session in list(self._sessions.values()):
            self._end(session)
        if self._block_port is not None:
            self._block_port.close()
        last = threading.Thread(target=super().shutdown, name="penstock-shutdown", daemon=True)
        try:
            last.start()
        except RuntimeError:  # the program ends, and may start no more threads
            close_all(self._at or self.port)
            super().shutdown()
            return
        last.join(_HANG_UP_S)
        if last.is_alive():
            close_all(self._at or self.port)
            last.join(_HANG_UP_S)


def _log_in(connections: ConnectionWatch, guard: Guard, header: str | None, peer: str) -> Callable[[], Principal]:
    """Check credentials; however long that takes, it is not the client that is late."""
    with connections.logging_in(peer):
        return guard(header, peer)


def _errors_of(session: Session, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with errors_sent(session):
        yield from batches
