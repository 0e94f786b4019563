"""Errors of streams, of their events, of writers, of transactions, and of reader groups and their readers."""

from __future__ import annotations

from penstock.errors._base import PenstockError

__all__ = [
    "CheckpointFailed",
    "CommitUnfinished",
    "CopyDiffers",
    "CopyFailed",
    "DataTruncated",
    "EventAborted",
    "EventClosed",
    "EventMalformed",
    "EventTooLarge",
    "GroupExists",
    "NoSuchEvent",
    "NoSuchGroup",
    "NoSuchReader",
    "NoSuchStream",
    "NoSuchTransaction",
    "NotDecodable",
    "NotPrepared",
    "ReaderBusy",
    "ReaderInUse",
    "ReaderOffline",
    "StreamError",
    "StreamExists",
    "StreamNotSealed",
    "StreamSealed",
    "TooManyPrepared",
    "TransactionEnded",
    "TransactionPrepared",
    "WriterFailed",
    "WriterFenced",
    "WriterForgotten",
    "WrongCut",
]


class StreamError(PenstockError):
    """A stream, a writer, a reader or a group refused the call."""


class NoSuchStream(StreamError):
    """The store has no stream of this name."""

    def __init__(self, stream: str) -> None:
        advice = "check the name, or create it first" if "/" in stream else f"a name has a scope, as in plant/{stream}"
        super().__init__(f"no stream {stream!r}: {advice}")
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


class CopyFailed(StreamError):
    """A stream cannot be copied, or not any further; what was copied stays."""

    def __init__(self, stream: str, *, reason: str) -> None:
        super().__init__(f"cannot copy stream {stream!r}: {reason}")
        self.stream, self.reason = stream, reason


class CopyDiffers(StreamError):
    """A copy does not have the events of its source."""

    def __init__(self, stream: str, *, place: object, expected: str, actual: str) -> None:
        super().__init__(
            f"the copy of stream {stream!r} differs from its source: {place} has {actual} in place of {expected}; "
            "delete the copy and its copy log, and copy the stream again"
        )
        self.stream, self.place, self.expected, self.actual = stream, place, expected, actual


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
            f"the event at {place} is not a valid {wanted} ({reason}): correct the program that writes it, or keep "
            "such events in a column of their own with the option on_corrupt=column"
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


class WriterForgotten(StreamError):
    """The store no longer knows exactly which events were written under this writer id."""

    def __init__(self, *, durable: int | None, highest: int) -> None:
        known = "none is known to be durable" if durable is None else f"those up to number {durable} are durable"
        super().__init__(
            "the stream had too many writer ids, and no longer knows which events it has of this one: "
            f"{known}, those up to number {highest} may be; read the stream to see which, then use another writer id"
        )
        self.durable, self.highest = durable, highest


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


class NoSuchTransaction(StreamError):
    """The store knows no transaction with this id."""

    def __init__(self, transaction: str) -> None:
        super().__init__(
            f"no transaction {transaction!r}: it was never begun, or ended long ago, or when its store was closed"
        )
        self.transaction = transaction


class TransactionEnded(StreamError):
    """The transaction was committed or aborted before, or its lease expired."""

    def __init__(self, transaction: str, *, reason: str) -> None:
        super().__init__(f"transaction {transaction} has ended: {reason}; begin another one")
        self.transaction, self.reason = transaction, reason


class TransactionPrepared(TransactionEnded):
    """The transaction is prepared: it takes no more events."""

    def __init__(self, transaction: str) -> None:
        StreamError.__init__(
            self, f"transaction {transaction} is prepared, and takes no more events: commit it, or abort it"
        )
        self.transaction, self.reason = transaction, "it is prepared"


class NotPrepared(StreamError):
    """A transaction to be committed together with others is not prepared; none of them was committed."""

    def __init__(self, transaction: str, *, reason: str) -> None:
        super().__init__(f"nothing was committed, because transaction {transaction} is not prepared: {reason}")
        self.transaction, self.reason = transaction, reason


class TooManyPrepared(StreamError):
    """The store has as many prepared transactions as it may; this transaction is still open."""

    def __init__(self, transaction: str, *, limit: int) -> None:
        super().__init__(
            f"transaction {transaction} cannot be prepared, the store has {limit} prepared transactions: "
            "commit or abort some of them first"
        )
        self.transaction, self.limit = transaction, limit


class CommitUnfinished(StreamError):
    """The commit is recorded, but the disk refused the rest of it; the store finishes it as soon as it can."""

    def __init__(self, transaction: str, *, cause: BaseException) -> None:
        advice = "its events appear once the disk accepts writes again; do not write it again"
        super().__init__(f"transaction {transaction} is committed, but not finished ({cause}): {advice}")
        self.transaction, self.cause = transaction, cause


class NoSuchGroup(StreamError):
    """The store has no reader group of this name."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no reader group {group!r}: create it first")
        self.group = group


class GroupExists(StreamError):
    """A reader group of this name exists."""

    def __init__(self, group: str, *, differs: str | None = None) -> None:
        if differs is None:
            text = f"reader group {group!r} exists: choose another name, or pass exist_ok=True to use it as it is"
        else:
            text = (
                f"reader group {group!r} exists, and has {differs}: choose another name, or use reader_group({group!r})"
            )
        super().__init__(text)
        self.group, self.differs = group, differs


class NoSuchReader(StreamError):
    """The group has no reader of this name."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader group {group!r} has no reader {reader!r}: check the name")
        self.group, self.reader = group, reader


class ReaderInUse(StreamError):
    """A reader of this name is already open."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader {reader!r} of group {group!r} is in use: close it, or choose another name")
        self.group, self.reader = group, reader


class ReaderBusy(StreamError):
    """Another task is reading from an asynchronous reader."""

    def __init__(self, reader: str) -> None:
        super().__init__(f"another task is waiting for reader {reader!r}: open a reader of its own for each task")
        self.reader = reader


class ReaderOffline(StreamError):
    """The reader was silent for too long or was taken offline, or its group was reset or deleted."""

    def __init__(self, group: str, reader: str, *, reason: str) -> None:
        super().__init__(f"reader {reader!r} of group {group!r} is offline ({reason}): open it again to continue")
        self.group, self.reader, self.reason = group, reader, reason


class CheckpointFailed(StreamError):
    """The checkpoint failed: a reader did not reach it in time, or another checkpoint was under way."""

    def __init__(self, group: str, name: str, *, reason: str) -> None:
        super().__init__(f"checkpoint {name!r} of group {group!r} failed: {reason}")
        self.group, self.name, self.reason = group, name, reason
