"""The writers that are open: the store fences one when another takes its id, and waits for all of them at its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stream.catalog import Catalog
    from penstock.stream.time import WriterMarks
    from penstock.stream.write._host import KnownWriter

__all__ = ["Writers"]

W = TypeVar("W", bound="KnownWriter")


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
            key = writer if writer.writer_id is None else writer.writer_id
            self._open[writer.stream_uid, key] = writer
        self.note_activity(writer)
        if writer.notes_time:
            self._wake()
        return writer

    def forget(self, writer: KnownWriter, *, for_good: bool) -> None:
        """Note that a writer writes no more; watermarks do not wait for one that ended for good."""
        with self._catalog.lock:
            for key in [key for key, one in self._open.items() if one is writer]:
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
