"""What a writer asks of a store that another process has open: blocks are sent, several at a time, and acknowledged.

Every writer here has an identity, its id's or one of its own, and its blocks carry it with the numbers of their events.
So when a connection is lost, the writer asks over the next one which of its blocks are durable, and sends only the
others again.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from penstock.client._connection import ConnectionLost
from penstock.client._outgoing_block import OutgoingBlock, fitting, parts_of, put_block, size_of, small
from penstock.client._task import Task
from penstock.client._translated import translated
from penstock.errors import NoSuchStream, ServerError
from penstock.retry import Retry
from penstock.stream.segment import anonymous_hash, writer_hash
from penstock.stream.write import OpenLane
from penstock.wire import (
    APPENDS,
    ENDED,
    Acknowledgement,
    FenceWriter,
    SmallBlock,
    pack,
    unpack,
    unpack_error,
)
from penstock.wire.operations import FIND_MAX, writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.client._connection import Channel
    from penstock.client._store import RemoteStore
    from penstock.errors import StoreUnreachable
    from penstock.model import EventPointer
    from penstock.ports import Bytes
    from penstock.stream.format import StreamBlockHeader
    from penstock.stream.write import KnownWriter, LargeWrite, ManagedWriter, Pump, WritableSegment
    from penstock.wire import NoteTime
    from penstock.wire.operations import Operation

__all__ = ["RemoteHost"]


class _RemoteLane:
    """A segment, as far as the writer needs it."""

    def __init__(self, host: RemoteHost, segment_id: int) -> None:
        self._host, self._segment_id = host, segment_id

    def submit(self, header: StreamBlockHeader, *parts: Bytes) -> OutgoingBlock:
        """Have a block ready to be sent."""
        return self._host.put(self._segment_id, header, parts)

    def last_of(self, writer: bytes, place: float, *, durable: int) -> int:
        """Return the number up to which a writer's events with this key are here; 0 if there are none."""
        del writer, durable  # the server knows both
        return int(self._host.call(lambda number: writers.Last(number, self._segment_id, place)))


class RemoteHost:
    """The store, as one writer sees it. The thread that sends holds the writer's lock, so one at a time does."""

    is_remote: Final = True

    def __init__(self, store: RemoteStore, stream: str, writer_id: str | None, *, notes_time: bool) -> None:
        self._store, self._connection, self._stream, self._writer_id = store, store.connection, stream, writer_id
        self._notes_time = notes_time
        self._token: Final = secrets.token_hex(16)  # by which the server recognises a writer that reconnects
        self.identity: Final = anonymous_hash(self._token) if writer_id is None else writer_hash(writer_id)
        self.clock: Final = store.clock
        self.steady: Final = threading.Lock()
        self._lock = threading.Lock()  # held while the writer is opened again
        self._put_lock = threading.Lock()  # held while blocks are sent, or no more of them
        self._ready: list[OutgoingBlock] = []
        self._sent = 0  # up to which number; higher ones under this identity are of another writer
        self._channel: Channel | None = None
        self._is_fenced = False
        self._number = 0
        self._writer: ManagedWriter | None = None
        self._found: list[Any] = []  # what a writer asks first, as it was when the server let it in
        self._is_lost = False  # the channel; or the writer is closed
        self._put: Any = None  # the writer's own stream, for large blocks
        self._acks: Any = None
        store.hosts[self._token] = self  # first: a notification may come at once
        try:
            self._open_first()
            if self._writer_id is not None:
                self._sent = self._found[3][1]
        except BaseException:
            del store.hosts[self._token]
            raise

    @property
    def pump(self) -> Pump:
        """The thread that sends events which no caller waits for."""
        return self._store.pump

    def take(self, writer: ManagedWriter) -> None:
        """Note whose host it is."""
        self._writer = writer
        self.fence_if_notified()

    def fence_if_notified(self) -> None:
        """Fence the writer if another has its id; this waits for blocks under way, so the listening thread must not."""
        writer = self._writer
        if self._is_fenced and writer is not None and writer.is_sound:
            writer.fence()

    def _open_first(self) -> None:
        """Open the writer; if the owner of the store ends meanwhile, with the next one."""
        retry = Retry()
        while True:
            try:
                return self._open(self._connection.channel, sent=None)
            except ConnectionLost as error:
                retry.after(error, self._connection.lost_again_and_again)

    def _open(self, channel: Channel, *, sent: int | None) -> None:
        opening = writers.OpenWriter(self._stream, self._writer_id, self._token, self._notes_time, sent)
        number, *found = channel.call(opening)
        if self._found and self._found[0] != found[0]:
            raise NoSuchStream(self._stream)  # it was deleted; this one only has its name
        self._found = found
        if self._channel is not None:
            self.lose(self._channel)
        with self._put_lock:
            self._number, self._channel, self._is_lost = number, channel, False

    def call(self, make: Callable[[int], Operation]) -> Any:  # noqa: ANN401 - as the operation says
        """Call the operation that ``make`` makes of the writer's number; the writer is opened again if need be."""
        retry = Retry()
        while True:
            try:
                channel = self.reopened()
            except ConnectionLost as error:
                retry.after(error, self._connection.lost_again_and_again)
                continue
            call = make(self._number)
            try:
                return channel.call(call)
            except ConnectionLost as error:
                self._connection.after_lost(call, error, retry)

    def reopened(self) -> Channel:
        """Return a channel on which the writer is open."""
        with self._lock:
            channel = self._connection.channel
            if channel is not self._channel:
                self._open(channel, sent=self._sent)
            return channel

    def lose(self, channel: Channel) -> None:
        """Send no more on a channel, which is lost."""
        with self._put_lock:
            if channel is not self._channel:
                return
            self._is_lost = True
            put, self._put = self._put, None
        if put is not None:
            with suppress(pa.ArrowException, OSError):
                put.close()

    def notify(self, message: FenceWriter | NoteTime) -> None:
        """Take a notification of the server; the pump acts on it, which may wait."""
        writer = self._writer
        if isinstance(message, FenceWriter):
            self._is_fenced = True
            self.pump.add(Task(self.fence_if_notified))
        elif writer is not None:
            self.pump.add(Task(partial(writer.note_by_itself, message.time)))

    # Blocks

    def put(self, segment_id: int, header: StreamBlockHeader, parts: tuple[Bytes, ...]) -> OutgoingBlock:
        """Have a block ready to be sent."""
        block = OutgoingBlock(self, segment_id, header, parts)
        self._ready.append(block)
        return block

    def send(self) -> None:
        """Send what is ready, and return when it is durable; what was durable before is not sent again."""
        blocks, self._ready = self._ready, []
        may_be_there, retry = False, Retry()
        while blocks:
            try:
                channel = self.reopened()
                if may_be_there:
                    self._find(channel, blocks)
                may_be_there = True
                waiting = [block for block in blocks if block.answer is None]
                self._exchange(channel, waiting[: fitting(waiting, channel.budget.limit / 2)])
            except ConnectionLost as error:
                retry.after(error, self._connection.lost_again_and_again)
            else:
                retry.progress()
            left = [block for block in blocks if block.answer is None]
            if not left:
                return
            ended = {block.segment_id for block in blocks if block.answer == ENDED}
            for block in left:
                if block.segment_id in ended:
                    block.answer = ENDED  # so that nothing gets there before what comes first
            blocks = [block for block in left if block.answer is None]

    def _exchange(self, channel: Channel, blocks: Sequence[OutgoingBlock]) -> None:
        if not blocks:
            return
        size = sum(map(size_of, blocks))
        with channel.budget.held(size), self._put_lock, translated(channel):
            if channel is not self._channel or self._is_lost:
                raise ConnectionLost
            for block in blocks:
                self.note_sent(block.header)
            lefts = zip(range(len(blocks) - 1, -1, -1), blocks, strict=True)
            if SmallBlock.fits(size):  # all together
                starts, error = channel.appends.exchange(self._number, [small(block, left) for left, block in lefts])
            else:
                starts, error = self._put_all(channel, lefts)
        if error is not None:
            raise unpack_error(error)
        if len(starts) != len(blocks):
            raise ServerError(f"the server acknowledged {len(starts)} blocks of {len(blocks)}")
        for block, start in zip(blocks, starts, strict=True):
            block.answer = start

    def _put_all(self, channel: Channel, blocks: Iterable[tuple[int, OutgoingBlock]]) -> Acknowledgement:
        """Send blocks over a connection for blocks, or on the writer's own stream: nothing else waits for them."""
        connection = channel.sockets.take()
        if connection is not None:
            with channel.sockets.used(connection):
                answered = connection.put(self._number, (parts_of(block, left) for left, block in blocks))
                acknowledged: Acknowledgement = unpack(answered, Acknowledgement)
                return acknowledged
        if self._put is None:
            command = pack([writers.AppendBlocks.operation, channel.id, self._number])
            self._put, self._acks = channel.client.do_put(flight.FlightDescriptor.for_command(command), APPENDS)
        for left, block in blocks:
            put_block(self._put, block, left)
        answer = self._acks.read()
        if answer is None:
            channel.is_lost = True
            raise ConnectionLost
        found: Acknowledgement = unpack(answer.to_pybytes(), Acknowledgement)
        return found

    def note_sent(self, header: StreamBlockHeader) -> None:
        """Note that a block with these numbers may get to the server."""
        self._sent = max(self._sent, header.last_number, header.flush_last)

    def _find(self, channel: Channel, blocks: Sequence[OutgoingBlock]) -> None:
        """Learn which blocks are durable already."""
        for first in range(0, len(blocks), FIND_MAX):
            part = blocks[first : first + FIND_MAX]
            found = channel.call(writers.Find(self._number, [block.described() for block in part]))
            for block, start in zip(part, found, strict=True):
                block.answer = start

    @property
    def number(self) -> int:
        """The number of the writer on the server."""
        return self._number

    def lost_again_and_again(self) -> StoreUnreachable:
        """Return what to raise when the connection was lost in all attempts."""
        return self._connection.lost_again_and_again()

    def unknown(self, consequence: str) -> StoreUnreachable:
        """Return what to raise when the connection was lost, and it is unknown whether a call was done."""
        return self._connection.unknown(consequence)

    # What else a writer asks

    def lanes(self, stream: str) -> tuple[int, list[OpenLane], bool]:
        """Return the number of a stream, the segments that take events now, by key range, and whether it keeps keys."""
        assert stream == self._stream, "it is the host of one writer"
        uid, found, keeps_keys = self._found[:3] if self._writer is None else self.call(writers.GetLanes)
        return uid, [OpenLane(segment_id, low, _RemoteLane(self, segment_id)) for segment_id, low in found], keeps_keys

    def numbers_of(self, stream: str, writer: bytes) -> tuple[int, int]:
        """Return the number up to which all events of the writer are durable, and the highest it has used."""
        assert (stream, writer) == (self._stream, self.identity), "it is the host of one writer"
        assert self._writer is None, "asked for when it is opened"
        floor, highest = self._found[3]
        return floor, highest

    def mark_behind(self, writer: KnownWriter, time: int) -> None:
        """Mark a time behind all that the writer has written."""
        assert writer.writer_id is not None, "only writers with an id note time"
        self.call(lambda number: writers.Mark(number, time))

    def note_activity(self, stream: str, uid: int, writer_id: str | None) -> None:
        """Do nothing: the server sees what the writer sends."""

    def prepare(self, segments: Iterable[WritableSegment]) -> None:
        """Do nothing: the owner creates what a block needs when it comes."""

    def random_position(self) -> float:
        """Return any place in the key space, for what has no key."""
        return secrets.randbits(32) / (1 << 32)

    def forget_writer(self, writer: KnownWriter, *, for_good: bool) -> None:
        """Note that the writer writes no more."""
        del writer
        self._store.hosts.pop(self._token, None)
        channel = self._channel
        if channel is not None and not channel.is_lost:
            self.lose(channel)
            with suppress(ConnectionLost):  # then it is closed with its session
                channel.call(writers.CloseWriter(self._number, for_good))

    def large_logs(self, stream: str, uid: int) -> _LargeLogs:
        """Return where a large event goes."""
        assert (stream, uid) == (self._stream, self._found[0]), "it is the host of one writer"
        return _LargeLogs(self)


class _LargeLogs:
    """Where one large event goes: it is sent on one channel, and lost with that."""

    def __init__(self, host: RemoteHost) -> None:
        self._host = host
        self._channel: Channel | None = None
        self._upload = 0

    def new_large_log(self) -> _LargeLogs:
        """Make a log for the event."""
        assert self._channel is None, "one event, one log"
        retry = Retry()
        while self._channel is None:
            try:
                channel = self._host.reopened()
                self._upload = channel.call(writers.OpenUpload(self._host.number))
            except ConnectionLost as error:
                retry.after(error, self._host.lost_again_and_again)
            else:
                self._channel = channel
        return self

    @property
    def name(self) -> str:
        """The name of the upload, for messages."""
        return f"upload {self._upload}"

    def submit(self, *data: Bytes) -> _Done:
        """Send a chunk; its head is made on the server."""
        _, chunk = data
        self._call(writers.WriteUpload(self._host.number, self._upload, bytes(chunk)))
        return _Done()

    def commit_large(
        self, write: LargeWrite, header: StreamBlockHeader, columns: bytes, position: float
    ) -> EventPointer:
        """Make the event part of the stream; return where it is."""
        self._host.note_sent(header)
        event = (write.size, header.pack(), columns, position)
        pointer: EventPointer = self._call(writers.CommitUpload(self._host.number, self._upload, *event))
        self._channel = None
        return pointer

    def _call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        assert self._channel is not None, "there is a log"
        try:
            return self._channel.call(call)
        except ConnectionLost as error:
            self._channel.is_lost = True
            is_last = isinstance(call, writers.CommitUpload)
            consequence = "whether a large event was committed is not known" if is_last else "a large event too"
            raise self._host.unknown(consequence) from error

    def abandon(self, write: LargeWrite) -> None:
        """Leave the log to the server, which deletes it with the session."""

    def drop(self) -> None:
        """Delete the chunks on the server; without a connection they are deleted with the session."""
        channel, self._channel = self._channel, None
        if channel is not None and not channel.is_lost:
            with suppress(ConnectionLost):  # then it is deleted with the session
                channel.call(writers.DropUpload(self._host.number, self._upload))


class _Done:
    def result(self) -> int:
        """Return at once: the chunk was sent, and the commit makes it durable."""
        return 0
