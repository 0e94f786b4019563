"""Writers and the store: what a writer asks of it, whichever process owns it, and the writers that are open.

The store fences a writer when another takes its id, and waits for all of them at its end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from penstock.model import EventPointer
    from penstock.ports import Bytes, Clock
    from penstock.stream.catalog import Catalog
    from penstock.stream.format import StreamBlockHeader
    from penstock.stream.time import WriterMarks
    from penstock.stream.write._flush import Pump
    from penstock.stream.write._large_write import LargeWrite

__all__ = [
    "KnownWriter",
    "LargeLog",
    "LargeLogs",
    "OpenLane",
    "Pending",
    "PendingChunk",
    "WritableSegment",
    "WriterHost",
    "Writers",
]

W = TypeVar("W", bound="KnownWriter")


class Pending(Protocol):
    """A block under way."""

    @property
    def start(self) -> int:
        """Where it begins, once it is durable."""

    def result(self) -> None:
        """Return when it is durable; ``SegmentEnded`` if there are successors to write to."""


class WritableSegment(Protocol):
    """A segment, as far as writers need it."""

    def submit(self, header: StreamBlockHeader, *parts: Bytes) -> Pending:
        """Append a block without waiting; ``SegmentEnded`` if there are successors to write to."""

    def last_of(self, writer: bytes, place: float, *, durable: int) -> int:
        """Return the number up to which a writer's events with this key are here; 0 if there are none.

        The caller knows that everything up to ``durable`` is; ``WriterForgotten`` if not enough is known of the rest.
        """


class OpenLane(NamedTuple):
    """A segment that takes events, with where its key range begins."""

    segment_id: int
    low: float
    segment: WritableSegment


class PendingChunk(Protocol):
    """A chunk under way."""

    def result(self) -> int:
        """Return when it is durable."""


class LargeLog(Protocol):
    """Where the chunks of a large event go."""

    @property
    def name(self) -> str:
        """The name of the log."""

    def submit(self, *data: Bytes) -> PendingChunk:
        """Append a chunk without waiting."""


class LargeLogs(Protocol):
    """The logs of a large event by itself."""

    def new_large_log(self) -> LargeLog:
        """Make a log for the event."""

    def commit_large(
        self, write: LargeWrite, header: StreamBlockHeader, columns: bytes, position: float
    ) -> EventPointer:
        """Make the event part of the stream, with its key and headers as the header says; return where it is."""

    def abandon(self, write: LargeWrite) -> None:
        """Let the log of an event be deleted some time later; takes no lock."""

    def drop(self) -> None:
        """Delete the logs that are there, and make no more."""


class KnownWriter(Protocol):
    """A writer, as the store sees it."""

    @property
    def stream(self) -> str:
        """The name of its stream."""

    @property
    def stream_uid(self) -> int:
        """The number of its stream."""

    @property
    def writer_id(self) -> str | None:
        """The id of the writer; None if it has none."""

    @property
    def is_sound(self) -> bool:
        """Whether no error has ended the writer."""

    @property
    def notes_time(self) -> bool:
        """Whether it notes the time by itself."""

    def note_by_itself(self, time: int) -> None:
        """Note a time."""

    def fence(self) -> None:
        """Write no more, because another writer has this one's id now."""

    def end(self, *, for_good: bool) -> None:
        """Make everything durable and write no more."""


class WriterHost(Protocol):
    """The store, as a writer sees it."""

    @property
    def is_remote(self) -> bool:
        """Whether another process owns it, which may stop answering."""

    @property
    def clock(self) -> Clock:
        """The store's clock."""

    @property
    def steady(self) -> AbstractContextManager[object]:
        """A lock under which no segment ends; where another process owns the store, it only excludes other threads."""

    @property
    def pump(self) -> Pump:
        """The pump, which flushes events that no thread waits for."""

    def lanes(self, stream: str) -> tuple[int, list[OpenLane], bool]:
        """Return the number of a stream, the segments that take events now, by key range, and whether it keeps keys."""

    def prepare(self, segments: Iterable[WritableSegment]) -> None:
        """Prepare segments for blocks that are about to be appended to all of them."""

    def numbers_of(self, stream: str, writer: bytes) -> tuple[int, int]:
        """Return the number up to which all events of a writer are durable, and the highest it has used."""

    def mark_behind(self, writer: KnownWriter, time: int) -> None:
        """Mark a time behind all that the writer has written."""

    def note_activity(self, stream: str, uid: int, writer_id: str | None) -> None:
        """Note that a writer has written, if the store does not see that by itself: then watermarks wait for it."""

    def large_logs(self, stream: str, uid: int) -> LargeLogs:
        """Return where a large event goes."""

    def random_position(self) -> float:
        """Return a random position in the key space, for an event without a key."""

    def forget_writer(self, writer: KnownWriter, *, for_good: bool) -> None:
        """Note that a writer writes no more; watermarks do not wait for one that ends for good."""


class Writers:
    """The open writers of a store, of this process and of others. ``wake`` starts maintenance."""

    def __init__(self, catalog: Catalog, marks: WriterMarks, *, wake: Callable[[], None]) -> None:
        self._catalog, self._marks, self._wake = catalog, marks, wake
        self._opening = threading.Lock()  # held while a writer with an id is opened
        self._open: dict[tuple[int, object], KnownWriter] = {}

    def admit(self, stream: str, writer_id: str | None, make: Callable[[], W]) -> W:
        """Register a new writer; an older one with the same id is fenced."""
        if writer_id is None:
            return self._register(make())
        with self._opening:  # one after another, so that each finds the one before it
            older = self.get(stream, writer_id)
            if older is not None:
                older.fence()
            return self._register(make())

    def get(self, stream: str, writer_id: str | None) -> KnownWriter | None:
        """Return the writer that has an id now, if one has."""
        with self._catalog.lock:
            return self._open.get((self._catalog.open_stream(stream).uid, writer_id))

    def is_open(self, stream_uid: int, writer_id: str) -> bool:
        """Whether a writer has an id now; the caller holds the catalog."""
        return (stream_uid, writer_id) in self._open

    def _register(self, writer: W) -> W:
        with self._catalog.lock:
            self._open[writer.stream_uid, _key(writer)] = writer
        self.note_activity(writer)
        if writer.notes_time:
            self._wake()
        return writer

    def forget(self, writer: KnownWriter, *, for_good: bool) -> None:
        """Note that a writer writes no more; watermarks do not wait for one that ended for good."""
        with self._catalog.lock:
            key = writer.stream_uid, _key(writer)
            if self._open.get(key) is writer:
                del self._open[key]
        if for_good and writer.writer_id is not None:
            self._marks.shut_down(writer.stream, writer.stream_uid, writer.writer_id)

    def note_activity(self, writer: KnownWriter) -> None:
        """Note that a writer has written: it is not silent."""
        self._marks.note_activity(writer.stream, writer.stream_uid, writer.writer_id)

    def all(self) -> list[KnownWriter]:
        """Return the writers that are open."""
        with self._catalog.lock:
            return list(self._open.values())

    def noting_time(self) -> list[KnownWriter]:
        """Return the writers that note the time by themselves."""
        return [writer for writer in self.all() if writer.notes_time]


def _key(writer: KnownWriter) -> object:
    return writer if writer.writer_id is None else writer.writer_id
