"""Reading events from input: lines, lines of JSON and whole files, of any size, in the memory of a few chunks."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from penstock.cli._output import count_of
from penstock.errors import BadArgument, DiskFull, EventAborted, PenstockError, WriterFailed

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from penstock.cli._json_events import GivenEvent
    from penstock.model import EventPointer
    from penstock.stream import BatchAck, EventOutputStream, StreamWriter
    from penstock.stream.format import Headers

__all__ = ["EventFeed", "write_json", "write_lines", "write_whole"]

_READ_SIZE: Final = 256 << 10
_JSON_LINE_MAX: Final = 16 << 20  # that is held: any small event, however it is escaped, with its key and headers
_WHOLE_READ_SIZE: Final = 4 << 20  # several chunks: most of them go out without a copy


class EventFeed:
    """Passes events to a writer, whole or in parts; drops an event that is incomplete at the end of the block.

    A small event is buffered until it is complete, and written with others. A large one is written part by part.
    """

    def __init__(self, writer: StreamWriter, key: str | None) -> None:
        from penstock.stream import EVENT_SIZE_MAX

        self._writer, self._size_max = writer, EVENT_SIZE_MAX
        self._key = None if key is None else os.fsencode(key)
        self._parts: list[bytes] = []  # of the current event, while it is small
        self._size = 0
        self._output: EventOutputStream | None = None  # takes the parts once it is large
        self._place_of_last: Callable[[], EventPointer] | None = None
        self.count = 0
        self._durable_counts: list[int] = []  # of each write that was acknowledged

    @property
    def pointer(self) -> str | None:
        """The position of the event, if there is just one; waits until it is durable."""
        return str(self._place_of_last()) if self._place_of_last is not None and self.count == 1 else None

    def add(self, events: Sequence[bytes]) -> None:
        """Write small events; blocks while too many are in flight."""
        self._wrote(self._writer.write_batch(events, self._key), len(events))

    def add_given(self, events: Sequence[GivenEvent]) -> None:
        """Write events with their own keys and headers; an event without a key gets that of ``--key``, if given."""
        large = next((index for index, event in enumerate(events) if len(event.event) > self._size_max), len(events))
        if large:
            small = events[:large]
            keys = [self._key if event.key is None else event.key for event in small]
            ack = self._writer.write_batch([event.event for event in small], keys, [event.headers for event in small])
            self._wrote(ack, large)
        if large < len(events):
            with self.large(events[large].key, events[large].headers) as output:
                output.write(events[large].event)
            self.add_given(events[large + 1 :])

    @contextmanager
    def large(self, key: bytes | None, headers: Headers | None) -> Iterator[EventOutputStream]:
        """Yield a file for an event, with its key or that of ``--key``; nothing is written if the block fails."""
        with self._writer.begin_write_event(self._key if key is None else key, headers=headers) as output:
            yield output
        self._wrote_large(output)

    def _wrote(self, ack: BatchAck, count: int) -> None:
        self._place_of_last = lambda: ack.result()[0]
        self.count += count
        ack.add_done_callback(lambda done: self._note_durable(done, count))

    def _note_durable(self, ack: BatchAck, count: int) -> None:
        with suppress(PenstockError):  # which is raised to the caller of the writer
            ack.result()
            self._durable_counts.append(count)

    def _wrote_large(self, output: EventOutputStream) -> None:
        self._place_of_last = lambda: output.pointer
        self.count += 1
        self._durable_counts.append(1)

    def add_part(self, part: bytes) -> None:
        """Add a part to the current event, or start one."""
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._size_max:
            if self._output is None:
                self._output = self._writer.begin_write_event(self._key)
            for waiting in self._parts:
                self._output.write(waiting)
            self._parts = []

    def end(self) -> None:
        """Write the current event; without any part it is empty."""
        output = self._output
        if output is None:
            self.add([b"".join(self._parts)])
        else:
            output.close()
            self._wrote_large(output)
        self._parts, self._size, self._output = [], 0, None

    def __enter__(self) -> Self:
        """Start a block, at whose end an incomplete event is dropped."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop an incomplete event; if writing failed, say why and how much was written."""
        if self._output is not None:
            self._output.abort()
        if isinstance(error, WriterFailed | EventAborted | DiskFull):
            reason = error if isinstance(error, DiskFull) else error.cause
            durable = count_of(sum(self._durable_counts), "event")
            raise PenstockError(f"{reason}; {durable} written before") from error


def write_lines(file: io.BufferedIOBase, events: EventFeed, done: Callable[[int], object]) -> None:
    """Write each line, without its newline, as an event; the last line needs no newline.

    Reading waits for writing, so backpressure reaches the other side of a pipe.
    """
    last = b"\n"
    while data := file.read1(_READ_SIZE):
        first, *others = data.split(b"\n")
        events.add_part(first)
        if others:
            events.end()
            *whole, begun = others
            if whole:
                events.add(whole)
            events.add_part(begun)
        last = data
        done(len(data))
    if not last.endswith(b"\n"):
        events.end()


def write_json(file: io.BufferedIOBase, events: EventFeed, done: Callable[[int], object]) -> None:
    """Write each line, an event as ``read --json`` prints it; skip empty lines."""
    from penstock.cli._json_events import given_event

    number, begun, behind = 0, bytearray(), b""
    while data := behind or file.read1(_READ_SIZE):
        done(len(data) - len(behind))
        behind = b""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(begun) + lines[0]
            begun.clear()
            events.add_given(_given(lines, given_event, number))
            number += len(lines)
        begun += rest
        if len(begun) > _JSON_LINE_MAX:
            number += 1
            try:
                behind = _write_long(bytes(begun), file, events, done)
            except BadArgument as error:
                raise BadArgument(f"line {number}: {error}") from None
            begun.clear()
    events.add_given(_given([bytes(begun)], given_event, number))


def _write_long(data: bytes, file: io.BufferedIOBase, events: EventFeed, done: Callable[[int], object]) -> bytes:
    """Write the event of a line that begins with ``data``; return what was read after the line."""
    from penstock.cli._json_long import LongLine

    line = LongLine(data)
    with events.large(line.key, line.headers) as output:
        data, end, behind = data[line.start :], b"", b""
        while data and not end:
            part, end, behind = data.partition(b"\n")
            output.write(line.add(part))
            if not end:
                data = file.read1(_READ_SIZE)
                done(len(data))
        line.end()
    return behind


def _given(lines: Sequence[bytes], parse: Callable[[bytes], GivenEvent], before: int) -> list[GivenEvent]:
    """Return the events of lines; an error names the number of its line."""
    found: list[GivenEvent] = []
    for number, line in enumerate(lines, before + 1):
        try:
            if line.strip():
                found.append(parse(line))
        except BadArgument as error:
            raise BadArgument(f"line {number}: {error}") from None
    return found


def write_whole(file: io.BufferedIOBase, events: EventFeed, done: Callable[[int], object]) -> None:
    """Write the whole content of a file as one event."""
    while data := file.read1(_WHOLE_READ_SIZE):
        events.add_part(data)
        done(len(data))
    events.end()
