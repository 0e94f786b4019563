"""What a client sends, followed frame by frame: a message that would be unpacked is found before gRPC has all of it.

HTTP/2 is a preface and then frames: 9 bytes of head (size 3, kind 1, flags 1, stream 4) and a payload. The payloads of
a stream's DATA frames are the messages of one call, each behind five bytes (compressed 1, size 4). Neither needs HPACK.
A message is protobuf, and which one depends on the method, which is in the headers; but all that a client of Flight
sends has one of two forms:

==========================  ============================================================================
``FlightData`` and others   fields of bytes: 1 descriptor, 2 header, 3 metadata, 1000 body; each once, in this order
``FlightDescriptor``        field 1 is a number below 128; then fields 2 and 3 of bytes, and no body
==========================  ============================================================================

The header is a flatbuffer of Arrow, which says whether the body is compressed. What has another form is refused: Arrow
might find a body in it where this module finds none. For the same reason a stream begins with its only HEADERS frame:
gRPC passes over the data of a stream that it does not know, and has not read what was followed here. Frames of the kind
CONTINUATION are refused: gRPC takes no headers that do not fit into one frame, but holds them in memory until they end.

A call is a stream. gRPC has memory for each from its HEADERS frame on, before the service is asked, so those that have
begun and not ended are counted. The server ends them, which is seen in what it answers (:class:`AnswerFollower`).

Nothing here does any I/O, and no more is held than the header of a message for each stream.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["AnswerFollower", "FrameFollower", "Refused"]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME: Final = struct.Struct(">HBBBI")
_PREFIX: Final = struct.Struct(">BI")
_DATA, _HEADERS, _RST_STREAM, _CONTINUATION = 0, 1, 3, 9
_END_STREAM: Final = 1
_STREAM: Final = 0x7FFF_FFFF  # the other bit is reserved
_HEADER_MAX: Final = 64 << 10  # a thousand columns
_PIECE_MIN: Final = 1 << 10  # a smaller piece in the middle of a message counts as no content
_UNFINISHED_MAX: Final = 4096  # streams that are in the middle of a message

_NUMBER, _DESCRIPTOR, _HEADER, _METADATA, _BODY = 0x08, 0x0A, 0x12, 0x1A, 0xC2  # the first bytes of tags
_BODY_SECOND: Final = 0x3E
_TAGS: Final[tuple[int, ...]] = (_NUMBER, _DESCRIPTOR, _HEADER, _METADATA, _BODY)
_TAGS_OF_DESCRIPTOR: Final[tuple[int, ...]] = (_HEADER, _METADATA)
_BYTE_MAX: Final = 0x7F  # of a number; a larger byte is followed by another one
_LENGTH_BYTES_MAX: Final = 5

_VERSION, _HEADER_TYPE, _HEADER_TABLE, _CUSTOM_METADATA = 0, 1, 2, 4  # fields of Arrow's Message
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DICTIONARY_DATA, _BATCH_COMPRESSION = 1, 3
_V5: Final = 4  # those before it could have their compression in the metadata

_FORM: Final = "a message that is not one of Flight"


class Refused(Exception):
    """A client sends what is not passed on; the reason is for the log, and the answer for a client of HTTP/1 or TLS."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


class FrameFollower:
    """The frames of one connection, as far as they have come."""

    def __init__(self) -> None:
        self._preface = _PREFACE  # what is still to come of it
        self._head = b""  # of a frame that has not come as a whole
        self._left = 0  # bytes of the payload
        self._stream = 0  # whose data the payload is; 0 if it is not data
        self._ends_stream = False
        self._newest = 0  # the highest stream that has begun
        self._messages: dict[int, _GrpcMessage] = {}  # those that have not come as a whole, by stream
        self.calls: Final = set[int]()  # streams that have begun, and that neither side has ended
        self.cancelled = 0  # calls that the client has ended; the server may still work on them
        self.idle_frames = 0  # those without content
        self.content_frames = 0

    def feed(self, data: memoryview) -> None:
        """Take what came next; ``Refused`` if it, and all that follows, must not be passed on."""
        place = self._skip_preface(data)
        while place < len(data):
            if self._left:
                payload = data[place : place + self._left]
                if self._stream:
                    self._follow(payload)
                self._left -= len(payload)
                place += len(payload)
            else:
                head = self._head + bytes(data[place : place + _FRAME.size - len(self._head)])
                place += len(head) - len(self._head)
                self._head = head
                if len(head) == _FRAME.size:
                    self._head = b""
                    self._begin_frame(*_FRAME.unpack(head))
            if self._ends_stream and not self._left:
                self._messages.pop(self._stream, None)
                self._ends_stream = False

    def _skip_preface(self, data: memoryview) -> int:
        size = min(len(self._preface), len(data))
        if data[:size] != self._preface[:size]:
            raise Refused("it does not speak HTTP/2", b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self._preface = self._preface[size:]
        return size

    def _begin_frame(self, size_high: int, size_low: int, kind: int, flags: int, stream: int) -> None:
        self._left, stream = size_high << 8 | size_low, stream & _STREAM
        self._stream = stream if kind == _DATA else 0
        if kind == _DATA and self._left >= (_PIECE_MIN if stream in self._messages else 1):
            self.content_frames += 1
        else:
            self.idle_frames += 1
        if kind == _DATA:
            if flags & ~_END_STREAM:
                raise Refused("a frame of data with padding")  # which gRPC does not understand either
            if not 0 < stream <= self._newest:
                raise Refused("data of a stream that has not begun")
            self._ends_stream = bool(flags)
        elif kind == _HEADERS:
            if stream <= self._newest:
                raise Refused("a stream that begins twice")
            self._newest = stream
            self.calls.add(stream)
        elif kind == _RST_STREAM:
            self._messages.pop(stream, None)
            if stream in self.calls:
                self.calls.remove(stream)
                self.cancelled += 1
        elif kind == _CONTINUATION:
            raise Refused("headers that do not fit into one frame")

    def _follow(self, data: memoryview) -> None:
        while data:
            message = self._messages.get(self._stream)
            if message is None:
                if len(self._messages) == _UNFINISHED_MAX:
                    raise Refused("too many messages that are not finished")
                message = self._messages[self._stream] = _GrpcMessage()
            data = data[message.take(data) :]
            if message.is_over:
                del self._messages[self._stream]


class AnswerFollower:
    """The frames that the server sends: which streams they end, and how many have content."""

    def __init__(self, calls: set[int]) -> None:
        self._calls = calls
        self._head = b""
        self._left = 0
        self.content_frames = 0

    def feed(self, data: memoryview) -> None:
        """Take what came next, and remove the calls that it ends."""
        place = self._left
        while place < len(data):
            head = self._head + bytes(data[place : place + _FRAME.size - len(self._head)])
            place += len(head) - len(self._head)
            self._head = head
            if len(head) == _FRAME.size:
                self._head = b""
                size_high, size_low, kind, flags, stream = _FRAME.unpack(head)
                size = size_high << 8 | size_low
                place += size
                self.content_frames += kind == _DATA and size > 0
                if kind == _RST_STREAM or (kind <= _HEADERS and flags & _END_STREAM):
                    self._calls.discard(stream & _STREAM)
        self._left = place - len(data)


class _GrpcMessage:
    """One message, as far as it has come."""

    __slots__ = ("_found", "_parser", "_wanted", "is_over")

    def __init__(self) -> None:
        self._parser = _parse_message()
        self._wanted = next(self._parser)
        self._found = bytearray()
        self.is_over = False

    def take(self, data: memoryview) -> int:
        """Return how many bytes of the data belong to the message."""
        place = 0
        while not self.is_over:
            part = data[place : place + abs(self._wanted)]
            place += len(part)
            if self._wanted < 0:
                self._wanted += len(part)
            else:
                self._found += part
                self._wanted -= len(part)
            if self._wanted:
                break
            found, self._found = bytes(self._found), bytearray()
            try:
                self._wanted = self._parser.send(found)
            except StopIteration:
                self.is_over = True
        return place


def _parse_message() -> Generator[int, bytes, None]:
    """Yield how many bytes are needed next; or how many are not, as a negative number."""
    compressed, left = _PREFIX.unpack((yield _PREFIX.size))
    if compressed:
        raise Refused("a compressed message")
    allowed, header = _TAGS, b""
    while left:
        tag, tag_size = yield from _parse_tag(left)
        if tag not in allowed:
            raise Refused(_FORM)
        size, size_size = yield from _parse_length(left - tag_size)
        if tag == _NUMBER:
            is_descriptor, size = size <= _BYTE_MAX, 0
            allowed = _TAGS_OF_DESCRIPTOR if is_descriptor else ()
        elif allowed is not _TAGS_OF_DESCRIPTOR:
            allowed = allowed[allowed.index(tag) + 1 :]
        left -= tag_size + size_size + size
        if left < 0:
            raise Refused(_FORM)
        if tag == _HEADER:
            header = yield min(size, _HEADER_MAX + 1)
            size -= len(header)
        elif tag == _BODY and size:
            _check_header(header)
        if size:
            yield -size


def _parse_tag(left: int) -> Generator[int, bytes, tuple[int, int]]:
    """Return the first byte of a tag, which is enough to tell it, and how many bytes it has."""
    tag = (yield 1)[0]
    if tag != _BODY:
        return tag, 1
    if left == 1 or (yield 1)[0] != _BODY_SECOND:
        raise Refused(_FORM)
    return tag, 2


def _parse_length(left: int) -> Generator[int, bytes, tuple[int, int]]:
    """Return a number, and how many bytes it has: no more than Arrow reads, which would cut a longer one off."""
    value = 0
    for place in range(min(left, _LENGTH_BYTES_MAX)):
        byte = (yield 1)[0]
        value |= (byte & _BYTE_MAX) << 7 * place
        if byte <= _BYTE_MAX:
            return value, place + 1
    raise Refused(_FORM)


def _check_header(header: bytes) -> None:
    """Refuse a body that is compressed, or whose header does not say so in a way that we understand."""
    if not 0 < len(header) <= _HEADER_MAX:
        raise Refused("a batch whose header is missing or too long")
    try:
        if _is_compressed(header):
            raise Refused("a compressed batch")
    except (struct.error, IndexError):
        raise Refused("a batch with a broken header") from None


def _is_compressed(header: bytes) -> bool:
    """Whether Arrow would unpack the body of a message with this header."""
    message = _Table(header, _number(header, "<I", 0))
    batch = message.table(_HEADER_TABLE)
    kind = message.number(_HEADER_TYPE, "<B")
    if kind == _DICTIONARY_BATCH and batch is not None:
        batch = batch.table(_DICTIONARY_DATA)
    elif kind != _RECORD_BATCH:
        return False  # then Arrow does not read the body
    if batch is None:
        return False
    is_old = message.number(_VERSION, "<h") < _V5 and message.place(_CUSTOM_METADATA) is not None
    return is_old or batch.place(_BATCH_COMPRESSION) is not None


class _Table:
    """A table of a flatbuffer; ``IndexError`` or ``struct.error`` if it is not in its buffer."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - _number(data, "<i", place)
        self._fields_size = _number(data, "<H", self._fields)

    def place(self, field: int) -> int | None:
        """Return where a field is; None if it has its default."""
        entry = 4 + 2 * field
        offset = _number(self._data, "<H", self._fields + entry) if entry < self._fields_size else 0
        return self._place + offset if offset else None

    def number(self, field: int, form: str) -> int:
        """Return the value of a field; 0 is the default of all that are read here."""
        place = self.place(field)
        return 0 if place is None else _number(self._data, form, place)

    def table(self, field: int) -> _Table | None:
        """Return the table that a field points to."""
        place = self.place(field)
        return None if place is None else _Table(self._data, place + _number(self._data, "<I", place))


def _number(data: bytes, form: str, place: int) -> int:
    if place < 0:
        raise IndexError(place)
    found: int = struct.unpack_from(form, data, place)[0]
    return found
