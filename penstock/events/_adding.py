"""Adding events: durable before their ids are returned, with one sync for many.

The event loop writes without waiting; acknowledgements come from threads of the store, and go back to the loop
together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.events._event import pack_event
from penstock.stream.format import LENGTH_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stream import Engine, StreamWriter

__all__ = ["TIME_TAG", "Adder"]

TIME_TAG: Final = "futoin-time"
"""The tag of a stream in which the times of added events are noted, so that it has watermarks."""

_WRITER: Final = "futoin"
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


class Adder:
    """Adds events to the streams of a store, for one event loop."""

    def __init__(self, store: Engine, *, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._loop = asyncio.get_running_loop()
        self._writers: dict[str, _OpenWriter] = {}
        self._done: deque[asyncio.Future[None]] = deque()
        self._is_called = False
        self._under_way = 0
        self._has_space = asyncio.Event()
        self._turn = asyncio.Lock()  # events are written in the order in which they came

    async def add(self, stream: str, kind: str, data: object) -> str:
        """Return the id of a new event once it is durable."""
        async with self._turn:
            while self._under_way > _UNDER_WAY_MAX:
                self._has_space.clear()
                await self._has_space.wait()
            opened = self._opened(stream)
            writer = opened.writer
            event = pack_event(kind, data, _text(opened.second(self._now())))  # not before: it must not be noted yet
            self._under_way += len(event)
        try:
            ack = writer.write_event(event, kind)
            done: asyncio.Future[None] = self._loop.create_future()
            ack.add_done_callback(lambda _: self._call(done))
            await done
            pointer = ack.result(0)
        except PenstockError:
            self._drop(stream, writer)  # the next event gets a writer that has not failed
            raise
        finally:
            self._under_way -= len(event)
            self._has_space.set()
        assert pointer is not None, "only numbered events have no position"
        return str(pointer.offset + LENGTH_SIZE + len(event))

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
            writer = self._store.writer(stream, _WRITER if notes_time else None)
            latest = self._noted(stream, state.uid) // 1000 + 1 if notes_time else 0
            opened = self._writers[stream] = _OpenWriter(state.uid, writer, latest)
        return opened

    def _noted(self, stream: str, uid: int) -> int:
        """Return up to which time a stream was said to be complete, by this server before it was restarted."""
        mark, watermark = self._store.marks.of(uid).get(_WRITER), self._store.watermark(stream)
        return max(-1 if mark is None else mark.time, -1 if watermark is None else watermark.lower)

    def _drop(self, stream: str, writer: StreamWriter) -> None:
        if stream in self._writers and self._writers[stream].writer is writer:
            del self._writers[stream]
            with suppress(PenstockError):  # every event that failed has told its caller
                writer.close()

    def _call(self, done: asyncio.Future[None]) -> None:
        """Let the event loop know that an event is durable, or failed; many wake it once."""
        self._done.append(done)
        if not self._is_called and not self._loop.is_closed():
            self._is_called = True
            self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        self._is_called = False  # first: what comes now calls again, or is done here
        while self._done:
            done = self._done.popleft()
            if not done.done():
                done.set_result(None)


def _text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
