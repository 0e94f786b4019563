"""Errors of streams, of their events, and of writers."""

from __future__ import annotations

from penstock.errors._base import PenstockError

__all__ = [
    "DataTruncated",
    "EventAborted",
    "EventClosed",
    "EventMalformed",
    "EventTooLarge",
    "NoSuchEvent",
    "NoSuchStream",
    "NotDecodable",
    "StreamError",
    "StreamExists",
    "StreamNotSealed",
    "StreamSealed",
    "WriterFailed",
    "WriterFenced",
    "WrongCut",
]


class StreamError(PenstockError):
    """A stream, a writer, a reader or a group refused the call."""


class NoSuchStream(StreamError):
    """The store has no stream of this name."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"no stream {stream!r}: create it first, or check the name")
        self.stream = stream


class StreamExists(StreamError):
    """A stream of this name exists."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} exists: choose another name, or pass exist_ok=True to keep it as it is")
        self.stream = stream


class StreamSealed(StreamError):
    """The stream takes no more events."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} is sealed: it can only be read, truncated and deleted")
        self.stream = stream


class StreamNotSealed(StreamError):
    """The stream is not sealed, and only a sealed stream can be deleted."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} still takes events: seal it before you delete it")
        self.stream = stream


class WrongCut(StreamError):
    """The cut belongs to another stream, or lies past the tail of this one."""

    def __init__(self, stream: str, cut: object, *, reason: str) -> None:
        super().__init__(f"invalid cut {cut} of stream {stream!r}: {reason}")
        self.stream, self.cut, self.reason = stream, cut, reason


class DataTruncated(StreamError):
    """The requested data has been truncated away."""

    def __init__(self, place: object, *, head: object) -> None:
        super().__init__(f"{place} has been truncated away: the stream begins at {head} now")
        self.place, self.head = place, head


class NoSuchEvent(StreamError):
    """No event begins at the pointer's offset."""

    def __init__(self, pointer: object) -> None:
        super().__init__(f"no event begins at {pointer}: use a pointer that a writer or a reader returned")
        self.pointer = pointer


class EventTooLarge(StreamError):
    """The event is larger than the limit; a reader continues with the next event."""

    def __init__(self, *, size: int, limit: int, pointer: object = None) -> None:
        place, advice = "an event", "write it as a file, with begin_write_event()"
        if pointer is not None:
            place = f"the event at {pointer}"
            advice = "raise the reader's max_event_size, or read it as a file, with fetch_event_as_stream(pointer)"
        super().__init__(f"{place} has {size} bytes, above the limit of {limit}: {advice}")
        self.size, self.limit, self.pointer = size, limit, pointer


class NotDecodable(StreamError):
    """The serializer cannot decode the bytes of an event."""

    def __init__(self, wanted: str, *, reason: str) -> None:
        super().__init__(f"an event is not {wanted} ({reason}): read it with the serializer that it was written with")
        self.wanted, self.reason = wanted, reason


class EventMalformed(StreamError):
    """An event does not have the format of the table that reads it."""

    def __init__(self, place: str, *, wanted: str, reason: str) -> None:
        super().__init__(
            f"the event at {place} is no {wanted} ({reason}): correct the program that writes it, or keep such events "
            "in a column of their own with the option on_corrupt=column"
        )
        self.place, self.wanted, self.reason = place, wanted, reason


class WriterFenced(StreamError):
    """A newer writer with the same id replaced this writer."""

    def __init__(self, stream: str, writer_id: str) -> None:
        super().__init__(
            f"another writer {writer_id!r} was opened on stream {stream!r}: this one writes no more; "
            "use one writer for each id"
        )
        self.stream, self.writer_id = stream, writer_id


class WriterFailed(StreamError):
    """An earlier write failed, so events written after it would be out of order."""

    def __init__(self, stream: str, *, cause: BaseException) -> None:
        super().__init__(f"an earlier write to stream {stream!r} failed ({cause}): open a new writer to continue")
        self.stream, self.cause = stream, cause


class EventClosed(StreamError, ValueError):
    """An event that is written or read as a file was used after it was closed."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the event can no longer be used: it is {how}; begin or fetch it again")
        self.how = how


class EventAborted(StreamError):
    """Writing an event failed, so no part of it is in the stream."""

    def __init__(self, *, cause: BaseException) -> None:
        super().__init__(f"the event was aborted, because writing it failed ({cause}): write all of it again")
        self.cause = cause
