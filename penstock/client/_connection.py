"""The connection to a server: calls and their answers, over a channel on which the server sends notifications.

The server has a session for each channel: the open writers, readers and transactions of the client, for as long as the
channel lasts. When it is lost, the next call opens another one; writers and readers open themselves again there, and a
call that was under way is made again only where that changes nothing.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import astuple
from pyarrow import flight

from penstock import forks
from penstock.client._block_sockets import BlockSocket, BlockSockets
from penstock.client._files import PlogFiles
from penstock.client._knock import ConnectionLost, action_of, answering
from penstock.client._reasons import without_context
from penstock.client._shared_appends import AppendStream, FlightStream, SharedAppends
from penstock.client._translated import translated
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
from penstock.ports import uninterrupted
from penstock.retry import Retry
from penstock.wire import (
    CHALLENGE_SIZE,
    PROTOCOL,
    Answer,
    ByteBudget,
    Notifications,
    ProbePlace,
    Welcome,
    pack,
    probe_content,
    probe_name,
    unpack,
)
from penstock.wire.operations import repositories, sessions, streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.client._objects import PlogObjects
    from penstock.wire import Notification
    from penstock.wire.operations import Operation

    Push = Callable[[list[Notification]], None]
    StoredBlock = tuple[int, memoryview, int]
    """Where a block begins, its bytes, and from when on it counts if that was in a transaction; 0 otherwise."""

__all__ = ["Channel", "Connection", "ConnectionLost", "Finder", "busy_retry"]

_PATIENCE_S: Final = 30.0
_GOODBYE_S: Final = 5.0
_logger: Final = logging.getLogger("penstock.client")


class Finder(Protocol):
    """Finds the server of a store, which may change."""

    def open(self) -> flight.FlightClient:
        """Return a client of the server; ``StoreUnreachable`` if there is none at the moment."""

    @property
    def address(self) -> str:
        """The store's address, for messages."""

    @property
    def block_host(self) -> str | None:
        """Where the server's port for blocks is, or its socket: of the one found last. None: clients do not use it."""

    @property
    def patience_s(self) -> float:
        """How long to wait for a server at first; after a lost connection the client waits longer."""

    def explained(self, reason: str) -> str:
        """Return why it cannot be reached, in words that say what to do."""

    def close(self) -> None:
        """End the search."""


class Channel:
    """One channel to a server, until it is lost. ``before`` is the id of the session that it replaces, if any.

    ``block_host`` is where the server's port for blocks would be.
    """

    def __init__(
        self,
        client: flight.FlightClient,
        push: Push,
        lost: Callable[[Channel], None],
        before: str | None,
        *,
        block_host: str | None,
    ) -> None:
        forks.guard(self)
        self.client: Final = client
        self.is_lost = False
        self._push, self._lost = push, lost
        self.reading: Final = set[Any]()  # streams that the server is sending
        self._received = 0  # notifications
        self._change = threading.Condition()  # of that number, and of ``is_lost``
        with translated(self):
            begin = sessions.BeginSession(PROTOCOL, before)
            hello = flight.FlightDescriptor.for_command(pack([begin.operation, *astuple(begin)]))
            self._writer, self._reader = self.client.do_exchange(hello)
            try:
                _, self.id, inflight, access = unpack(self._receive_in_time(), Welcome)
            except BaseException:
                with suppress(pa.ArrowException, OSError):
                    self._reader.cancel()  # or closing waits for a server that goes on
                self._let_go()  # or Arrow complains on the standard error
                raise
        self.sockets: Final = BlockSockets(block_host, access)
        self.appends: Final = SharedAppends(partial(_append_stream, self.sockets, client, self.id))
        self.budget: Final = ByteBudget(inflight)  # for blocks that are sent and not acknowledged, of all writers
        self._listener = threading.Thread(target=self._listen, name="penstock-client", daemon=True)
        self._listener.start()

    def _receive_in_time(self) -> bytes:
        """Return the first message; ``DeadlineExceeded`` if the server takes longer than the caller has.

        The channel itself can have no time limit: it is to last.
        """
        left = time_left()
        if left is None:
            return self._receive()
        message: Future[bytes] = Future()
        threading.Thread(target=_fulfil, args=(message, self._receive), name="penstock-welcome", daemon=True).start()
        try:
            return message.result(left)
        except TimeoutError:
            self._reader.cancel()
            raise DeadlineExceeded from None

    def _receive(self) -> bytes:
        try:
            metadata = self._reader.read_chunk().app_metadata
        except StopIteration:
            metadata = None
        if metadata is None:
            raise ConnectionLost
        data: bytes = metadata.to_pybytes()
        return data

    def _listen(self) -> None:
        """Pass notifications on. This thread never calls the server: calls wait for it, see :meth:`call`."""
        try:
            with translated(self):
                while True:
                    self._push(unpack(self._receive(), Notifications))
                    with self._change:
                        self._received += 1
                        self._change.notify_all()
        except ConnectionLost:
            pass
        except Exception:
            _logger.exception("the channel broke")
        finally:
            with self._change:
                self.is_lost = True
                self._change.notify_all()
            self.appends.close()  # or a server that ends would wait for them
            self.sockets.close()
            self._lost(self)

    @uninterrupted
    def call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation; ``ConnectionLost`` if the channel is lost.

        Returns when all notifications that the server sent before its answer were passed on: the effects of a call are
        known here when it is over.
        """
        answer = self._answer(action_of(self.id, call))
        notified, value = unpack(answer.body.to_pybytes(), Answer)
        if self._received < notified:
            with self._change:
                self._change.wait_for(lambda: self.is_lost or self._received >= notified, time_left())
            if self._received < notified:
                raise ConnectionLost if self.is_lost else DeadlineExceeded
        return value

    def _answer(self, action: flight.Action) -> flight.Result:
        """Return the answer of the server, which may be too busy for a while."""
        retry = busy_retry(time.monotonic())
        while True:
            try:
                with translated(self):
                    answers = list(self.client.do_action(action, _options()))
            except ServerBusy as error:
                retry.after(error)
            else:
                if len(answers) != 1:
                    raise ServerError(f"the server sent {len(answers)} answers to one call: is it a Penstock server?")
                return answers[0]

    @uninterrupted
    def close(self) -> None:
        """End the session; nothing of it is left on the server then."""
        action = action_of(self.id, sessions.End())
        with suppress(ConnectionLost, DeadlineExceeded, PenstockError), translated(self):
            list(self.client.do_action(action, flight.FlightCallOptions(timeout=_GOODBYE_S)))
            self._listener.join(_GOODBYE_S)
        self.hang_up()

    def end_reading(self, reader: flight.FlightStreamReader) -> None:
        """Cancel a stream: the server would send it for as long as the reader exists."""
        self.reading.discard(reader)
        reader.cancel()

    def hang_up(self) -> None:
        """Close a channel whose session is over, or lost."""
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
    """Calls a server, over one channel after another."""

    def __init__(
        self, finder: Finder, push: Push, lost: Callable[[Channel], None], objects: PlogObjects | None
    ) -> None:
        forks.guard(self)
        self._finder, self._push, self._lost = finder, push, lost
        self._objects = objects  # None: there is no bucket
        self._refused: Channel | None = None  # for as long as this is the channel, the objects are not read
        self._lock = threading.Lock()
        self._access_lock = threading.Lock()  # held during the access probe
        self._access: tuple[Channel | None, PlogFiles | None] = (None, None)  # on which channel, and the files
        self._channel: Channel | None = None
        self._tried_since: float | None = None  # since when there is none, though it was asked for
        self._closed = False

    @property
    def channel(self) -> Channel:
        """The open channel, or a new one."""
        channel = self._channel
        if channel is not None and not channel.is_lost and not self._closed:
            return channel
        return run_locked(self._lock, self._found_channel)

    def _found_channel(self) -> Channel:
        if self._closed:
            raise StoreClosed("the store")
        if self._channel is None or self._channel.is_lost:
            self._channel = self._connect(self._channel)
            self._tried_since = None
        return self._channel

    def _connect(self, before: Channel | None) -> Channel:
        """Open a channel, with patience: another process may just be taking the store over."""
        forks.check_network()
        if before is not None:
            before.hang_up()
        begun = self._tried_since = self._tried_since or time.monotonic()
        patience_s = self._finder.patience_s if before is None else _PATIENCE_S
        unreachable = Retry(attempts_max=math.inf, until=begun + patience_s)
        busy = busy_retry(begun)
        while True:
            try:
                client = self._finder.open()
                if before is not None:
                    client = answering(client, _PATIENCE_S)
                session_before = None if before is None else before.id
                return Channel(client, self._push, self._lost, session_before, block_host=self._finder.block_host)
            except (StoreUnreachable, ConnectionLost) as error:
                if self._closed:
                    raise StoreClosed("the store") from error
                if before is None and isinstance(error, OwnerStopped):
                    raise  # it stays so until its user does something
                unreachable.after(error, partial(self._unreachable, error))
            except ServerBusy as error:
                if self._closed:
                    raise StoreClosed("the store") from error
                busy.after(error)

    def _unreachable(self, error: Exception) -> StoreUnreachable:
        reason = self._finder.explained(_reason(error.__cause__ or error))
        return StoreUnreachable(self._finder.address, reason=reason)

    def call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        """Call an operation; one that may be repeated once more if the connection is lost on the way."""
        retry = Retry()
        while True:
            channel = self.channel
            try:
                return channel.call(call)
            except ConnectionLost as error:
                self.after_lost(call, error, retry)

    def after_lost(self, call: Operation, error: ConnectionLost, retry: Retry) -> None:
        """Return when a call may be made again during which the connection was lost; raise why it may not."""
        if error.is_begun and not call.may_repeat:
            raise self.unknown(f"whether {call.operation} was done is not known") from error
        retry.after(error, self.lost_again_and_again)

    def unknown(self, consequence: str) -> StoreUnreachable:
        """Return what to raise when the connection was lost, and it is unknown whether a call was done."""
        return StoreUnreachable(self._finder.address, reason=f"the connection was lost, and {consequence}")

    def lost_again_and_again(self) -> StoreUnreachable:
        """Return what to raise when the connection was lost in all attempts."""
        return StoreUnreachable(self._finder.address, reason="the connection was lost again and again")

    def get(
        self, channel: Channel, call: streams.GetBlocks | repositories.GetRepositoryStream
    ) -> Iterator[pa.RecordBatch]:
        """Return the blocks of a segment or of a repository stream, in batches."""
        ticket, until = flight.Ticket(pack([call.operation, channel.id, astuple(call)])), limit()
        with translated(channel):
            reader = channel.client.do_get(ticket, _options())
            channel.reading.add(reader)
            try:
                for chunk in reader:
                    yield chunk.data
                    if limit() < until:
                        raise DeadlineExceeded  # the next call has less time than the first one: it has to ask anew
            finally:
                with suppress(ForkedHandle):  # in a child it is the parent's
                    channel.end_reading(reader)

    def blocks(self, channel: Channel, call: streams.GetBlocks) -> Iterator[StoredBlock | pa.RecordBatch]:
        """Return the blocks of a segment: over a connection for blocks, or over Flight as batches."""
        found = channel.sockets.take()
        if found is None:
            yield from self.get(channel, call)
            return
        with translated(channel), channel.sockets.used(found):
            yield from found.blocks(call)

    def direct_access(self, stream: str, segment: int, offset: int) -> PlogObjects | PlogFiles | None:
        """Return the objects of the store if its user has named them, or its files if this process has access to them.

        The latter is probed once per channel.
        """
        if self._objects is not None and (self._refused is None or self._refused is not self._channel):
            return self._objects
        channel = self.channel
        if self._access[0] is not channel:
            run_locked(self._access_lock, lambda: self._find_files(channel, stream, segment, offset))
        return self._access[1]

    def _find_files(self, channel: Channel, stream: str, segment: int, offset: int) -> None:
        if self._access[0] is not channel:
            self._access = channel, _probed(channel, stream, segment, offset)

    def give_up(self, access: PlogObjects | PlogFiles | None, reason: str) -> None:
        """Give direct access up while the channel lasts: a server that was replaced may name objects that are gone."""
        if access is not None and access is self._objects:
            if self._refused is not self._channel:
                _logger.warning("no direct reads of %s: %s; the server sends its events", access.where(), reason)
            self._refused = self._channel
        else:
            self._access = self.channel, None

    def close(self) -> None:
        """Close the channel, and open no other."""
        self._closed = True  # first: threads that try to connect stop
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def _append_stream(
    sockets: BlockSockets, client: flight.FlightClient, session_id: str, idle: AppendStream | None
) -> AppendStream:
    """Return a stream for small blocks: over Flight only while there is no connection for blocks."""
    if isinstance(idle, BlockSocket):
        return idle
    found = sockets.take()
    if found is None:
        return idle or FlightStream(client, session_id)
    if idle is not None:
        idle.close()
    return found


def _fulfil(message: Future[Any], receive: Callable[[], Any]) -> None:
    try:
        message.set_result(receive())
    except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
        message.set_exception(error)


def busy_retry(begun: float) -> Retry:
    """Return when to call a busy server again."""
    return Retry(attempts_max=math.inf, until=begun + _PATIENCE_S)


def _options() -> flight.FlightCallOptions | None:
    """Return the options of a call, with its time limit."""
    left = time_left()
    return None if left is None else flight.FlightCallOptions(timeout=left)


def _probed(channel: Channel, stream: str, segment: int, offset: int) -> PlogFiles | None:
    """Look for the access probe that the server makes for this client."""
    challenge = secrets.token_bytes(CHALLENGE_SIZE)
    answer = channel.call(streams.Probe(stream, segment, offset, challenge))
    try:
        found = msgspec.convert(answer, ProbePlace)
    except msgspec.ValidationError as error:
        raise ServerError(f"cannot decode the place of an access probe ({error})") from error
    if found is None:
        return None
    number, folder, place = found
    files = PlogFiles.probed(folder, probe_name(channel.id), probe_content(channel.id, challenge), place)
    channel.call(streams.EndProbe(number))
    return files


def _reason(error: BaseException) -> str:
    """Return what made a connection fail."""
    return error.reason if isinstance(error, StoreUnreachable) else without_context(str(error))
