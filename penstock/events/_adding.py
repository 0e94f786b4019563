"""Adding events: durable before their ids are returned, with one sync for many.

The event loop writes without waiting; acknowledgements come from threads of the store, and go back to the loop
together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import PenstockError
from penstock.events._event import pack_event
from penstock.events.times import TIME_TAG, TIME_WRITER
from penstock.stream.format import LENGTH_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events._ports import WritesEvents
    from penstock.stream import Ack, DoneAck, StreamWriter

__all__ = ["Adder"]

_UNDER_WAY_MAX: Final = 512 << 10  # bytes; below the buffer of a writer, so that writing never waits


class _OpenWriter:
    """A writer of a stream, by its uid, and the time of the last event, in whole seconds, which does not go back."""

    __slots__ = ("latest", "uid", "writer")

    def __init__(self, uid: int, writer: StreamWriter, latest: int) -> None:
        self.uid, self.writer, self.latest = uid, writer, latest

    def second(self, now: float) -> int:
        """Return the time of an event that is added now."""
        self.latest = max(self.latest, int(now))
        return self.latest


class _Written(NamedTuple):
    """An event on its way to the disk, and the future of its id."""

    ack: Ack | DoneAck
    size: int
    added: asyncio.Future[str]

    def settle(self) -> None:
        """Set the id of an event that is durable; raise what made it fail."""
        pointer = self.ack.result(0)
        assert pointer is not None, "only numbered events have no position"
        if not self.added.done():  # a caller that is gone has cancelled it
            self.added.set_result(str(pointer.offset + LENGTH_SIZE + self.size))

    def fail(self, error: PenstockError) -> None:
        """Set the error."""
        if not self.added.done():
            self.added.set_exception(error)


_Batch = tuple[str, "StreamWriter", list[_Written]]
"""Events that were written to a stream in one turn of the event loop."""


class Adder:
    """Adds events to the streams of a store, for one event loop."""

    def __init__(self, store: WritesEvents, *, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._loop = asyncio.get_running_loop()
        self._writers: dict[str, _OpenWriter] = {}
        self._written: dict[tuple[str, StreamWriter], list[_Written]] = {}  # in this turn of the loop
        self._ended: deque[_Batch] = deque()
        self._is_called = False
        self._under_way = 0
        self._has_space = asyncio.Event()

    async def add(self, stream: str, kind: str, data: object) -> asyncio.Future[str]:
        """Write an event, and return the future of its id, which is done once the event is durable.

        Events are written in the order of these calls, unless they wait: a caller whose events have an order calls
        again when the last call has returned.
        """
        while self._under_way > _UNDER_WAY_MAX:
            self._has_space.clear()
            await self._has_space.wait()
        opened = self._opened(stream)
        writer = opened.writer
        event = pack_event(kind, data, _text(opened.second(self._now())))  # not before: it must not be noted yet
        try:
            ack = writer.write_event(event, kind)
        except PenstockError:
            self._drop(stream, writer)  # the next event gets a writer that has not failed
            raise
        self._under_way += len(event)
        if not self._written:
            self._loop.call_soon(self._watch)
        added: asyncio.Future[str] = self._loop.create_future()
        self._written.setdefault((stream, writer), []).append(_Written(ack, len(event), added))
        return added

    def _watch(self) -> None:
        """Have the last event of this turn watched: a writer makes its events durable in their order."""
        for (stream, writer), events in self._written.items():
            call = partial(self._call, (stream, writer, events))
            events[-1].ack.add_done_callback(lambda _, call=call: call())  # type: ignore[misc]
        self._written = {}

    def close(self) -> None:
        """Close the writers."""
        for stream, opened in list(self._writers.items()):
            self._drop(stream, opened.writer)

    def forget_deleted(self) -> list[StreamWriter]:
        """Forget the writers of streams that are not there any more; return them, to be closed."""
        streams = self._store.catalog.streams
        deleted = [
            stream
            for stream, opened in self._writers.items()
            if (state := streams.get(stream)) is None or state.uid != opened.uid
        ]
        return [self._writers.pop(stream).writer for stream in deleted]

    def times(self) -> list[tuple[StreamWriter, int]]:
        """Return the writers that note time, and the time up to which they have written all events.

        Times of events are whole seconds, and never go back: all that come from now on are of this second, or later.
        """
        now = self._now()
        timed = [opened for opened in self._writers.values() if opened.writer.writer_id is not None]
        return [(opened.writer, opened.second(now) * 1000 - 1) for opened in timed]

    def _opened(self, stream: str) -> _OpenWriter:
        state = self._store.catalog.open_stream(stream)
        opened = self._writers.get(stream)
        if opened is None or opened.uid != state.uid:
            if opened is not None:
                self._drop(stream, opened.writer)
            notes_time = TIME_TAG in state.config.tags
            writer = self._store.writer(stream, TIME_WRITER if notes_time else None)
            latest = self._noted(stream, state.uid) // 1000 + 1 if notes_time else 0
            opened = self._writers[stream] = _OpenWriter(state.uid, writer, latest)
        return opened

    def _noted(self, stream: str, uid: int) -> int:
        """Return up to which time a stream was said to be complete, by this server before it was restarted."""
        mark, watermark = self._store.marks.of(uid).get(TIME_WRITER), self._store.watermark(stream)
        return max(-1 if mark is None else mark.time, -1 if watermark is None else watermark.lower)

    def _drop(self, stream: str, writer: StreamWriter) -> None:
        if stream in self._writers and self._writers[stream].writer is writer:
            del self._writers[stream]
            with suppress(PenstockError):  # every event that failed has told its caller
                writer.close()

    def _call(self, batch: _Batch) -> None:
        """Let the event loop know that events are durable, or failed; many calls wake it once."""
        self._ended.append(batch)
        if not self._is_called and not self._loop.is_closed():
            self._is_called = True
            self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._is_called = False  # first: what comes now calls again, or is done here
        while self._ended:
            stream, writer, events = self._ended.popleft()
            for event in events:
                self._under_way -= event.size
                try:
                    event.settle()
                except PenstockError as error:
                    self._drop(stream, writer)  # the next event gets a writer that has not failed
                    event.fail(error)
        self._has_space.set()


@lru_cache(maxsize=16)
def _text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
