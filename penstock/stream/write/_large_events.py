"""The large events of a writer: written to logs of their own, committed behind everything that was written before.

Committing one flushes what waits in the lanes first. So the order of events is the order in which large ones are
closed, and a large event has its place among the numbers of the writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.ports import uninterrupted
from penstock.stream.format import EXTENT, StreamBlockHeader, key_position
from penstock.stream.write._acks import DoneAck
from penstock.stream.write._large_write import EventOutputStream, LargeWrite

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model import EventPointer
    from penstock.ports import Bytes
    from penstock.stream.format import Attributes
    from penstock.stream.write._flush import Flusher
    from penstock.stream.write._host import LargeLogs, WriterHost
    from penstock.stream.write._lanes import Lanes
    from penstock.stream.write._numbers import Numbers

__all__ = ["LargeEvents"]


class LargeEvents:
    """Writes the large events of one writer."""

    def __init__(self, host: WriterHost, stream: str, lanes: Lanes, numbers: Numbers, flusher: Flusher) -> None:
        self._host, self._stream, self._lanes, self._numbers, self._flusher = host, stream, lanes, numbers, flusher

    def begin(
        self, attributes: Attributes, write_small: Callable[[bytes, Attributes], EventPointer]
    ) -> EventOutputStream:
        """Begin an event of any size, as a file; ``write_small`` writes one that turns out to fit into a block."""
        self._flusher.check()
        logs = self._logs()

        def commit(write: LargeWrite, output: EventOutputStream) -> None:
            event = write.finish()
            output.place_at(self._commit(logs, write, attributes) if event is None else write_small(event, attributes))

        write = LargeWrite(logs.new_large_log, self._host.clock)
        return EventOutputStream(write, commit, lambda _: logs.drop(), logs.abandon, check=self._flusher.check)

    def write(self, event: Bytes, attributes: Attributes) -> EventPointer:
        """Write an event that the writer numbers; return when it is durable."""
        logs = self._logs()
        try:
            return self._commit(logs, self._write_chunks(logs, event), attributes)
        except BaseException:
            logs.drop()
            raise

    def write_numbered(self, event: bytes, attributes: Attributes, number: int | None) -> DoneAck:
        """Write an event whose number the caller gives, unless it is there already; return when it is durable.

        Nothing that is written later is sent before it.
        """
        return self._flusher.holding(lambda: self._send_numbered(event, attributes, number))

    @uninterrupted
    def _send_numbered(self, event: bytes, attributes: Attributes, number: int | None) -> DoneAck:
        wanted, position, lane = self._flusher.with_empty_lanes(
            lambda: self._numbers.place(self._lanes, attributes.key, number)
        )
        if lane is None:
            return DoneAck(None)
        logs = self._logs()
        try:
            write = self._write_chunks(logs, event)
            return DoneAck(self._splice(logs, write, position, wanted, attributes))
        except BaseException as error:
            logs.drop()
            self._flusher.fail(error)
            raise

    def _logs(self) -> LargeLogs:
        return self._host.large_logs(self._stream, self._lanes.uid)

    def _write_chunks(self, logs: LargeLogs, event: Bytes) -> LargeWrite:
        write = LargeWrite(logs.new_large_log, self._host.clock)
        write.write(event)
        write.finish()
        return write

    def _commit(self, logs: LargeLogs, write: LargeWrite, attributes: Attributes) -> EventPointer:
        """Make an event whose chunks are durable part of the stream."""
        return self._flusher.holding(lambda: self._send(logs, write, attributes))

    @uninterrupted
    def _send(self, logs: LargeLogs, write: LargeWrite, attributes: Attributes) -> EventPointer:
        number = self._flusher.with_empty_lanes(self._numbers.next)
        key = attributes.key
        position = self._host.random_position() if key is None else key_position(key)
        return self._splice(logs, write, position, number, attributes)

    def _splice(
        self, logs: LargeLogs, write: LargeWrite, position: float, number: int, attributes: Attributes
    ) -> EventPointer:
        """Let a segment take over the log of an event; the caller holds the flush lock."""
        floor = max(self._numbers.floor, number)
        columns, body = attributes.packed(keeps_key=self._lanes.keeps_keys)
        header = StreamBlockHeader(
            kind=EXTENT,
            columns=columns,
            count=0,
            writer=self._numbers.writer,
            last_number=number,
            flush_last=floor,
            durable_floor=floor,
        )
        pointer = logs.commit_large(write, header, body, position)
        self._flusher.note_floor(floor)
        return pointer
