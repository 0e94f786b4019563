"""What a client has open on the server, for as long as its channel lasts.

The channel goes both ways: the client says which segments it wants to hear of, the server tells when they have grown,
and what a reader has to know. What is told is kept until it is sent, by whatever thread finds out; one thread sends it.
Of a segment only the last news is kept, so a client that does not listen costs nothing.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

from penstock.client._wire import pack
from penstock.errors import BadArgument, PenstockError
from penstock.stream._bell import Bell

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stream import StreamStore
    from penstock.stream._group_state import Key
    from penstock.stream._segment import Segment

__all__ = ["Session"]

_OPEN_MAX: Final = 100_000  # things that a client may have open at once


class Session:
    """One client. ``user`` is who it is, if that is asked for."""

    def __init__(self, store: StreamStore, user: str) -> None:
        self.id: Final = secrets.token_hex(16)
        self.store, self.user = store, user
        self._lock = threading.Lock()
        self._bell = Bell()
        self._news: dict[object, list[Any]] = {}  # what to tell, by what it is about
        self._watched: dict[Key, tuple[Segment, Bell]] = {}
        self._open: dict[int, Any] = {}
        self._last = 0
        self._is_over = False

    # What it has open

    def keep(self, thing: object) -> int:
        """Keep something open; return its number."""
        with self._lock:
            if len(self._open) >= _OPEN_MAX:
                raise BadArgument(f"a client has at most {_OPEN_MAX} writers, readers and transactions open")
            self._last += 1
            self._open[self._last] = thing
            return self._last

    def get(self, number: int, kind: type) -> Any:  # noqa: ANN401 - of that kind
        """Return what is open under a number."""
        thing = self._open.get(number)
        if not isinstance(thing, kind):
            raise BadArgument(f"there is no {kind.__name__} {number} in this session")
        return thing

    def drop(self, number: int) -> None:
        """Forget what is open under a number."""
        with self._lock:
            self._open.pop(number, None)

    # What it is told

    def tell(self, about: object, message: list[Any]) -> None:
        """Send a message, in place of one about the same that was not sent yet."""
        with self._lock:
            self._news[about] = message
        self._bell.ring()

    def watch(self, key: Key) -> None:
        """Tell of a segment: at once, and whenever something happens to it."""
        bell = _SegmentBell(self, key)
        with self._lock:
            if key in self._watched:
                return
        try:
            segment = self.store.segment(*key)
        except (KeyError, PenstockError):
            self.tell(key, ["segment", *key, None])
            return
        with self._lock:
            self._watched[key] = segment, bell
        segment.watch(bell)
        self.hear(key)

    def unwatch(self, key: Key) -> None:
        """Tell of a segment no more."""
        with self._lock:
            watched = self._watched.pop(key, None)
        if watched is not None:
            watched[0].unwatch(watched[1])

    def hear(self, key: Key) -> None:
        """Note that something happened to a segment."""
        watched = self._watched.get(key)
        if watched is not None:
            self.tell(key, ["segment", *key, segment_news(self.store, key, watched[0])])

    def run(self, send: Callable[[bytes], object]) -> None:
        """Send what there is to tell, until the session is over."""
        while True:
            self._bell.wait(None)
            if self._is_over:
                return
            with self._lock:
                news, self._news = self._news, {}
            if news:
                send(pack(list(news.values())))

    def end(self) -> None:
        """Let go of everything: the client is gone."""
        self._is_over = True
        self._bell.ring()
        for key in list(self._watched):
            self.unwatch(key)
        with self._lock:
            things, self._open = list(self._open.values()), {}
        for thing in things:
            thing.abandon()


def segment_news(store: StreamStore, key: Key, segment: Segment) -> list[int | None] | None:
    """Return where a segment begins, how far it can be read and, if it is sealed, where it ends; None if it is gone."""
    stream, number = key
    state = store.catalog.streams.get(stream)
    one = None if state is None else state.segments.get(number)
    if state is None or one is None:
        return None
    return [state.head.get(number, 0), segment.tail, one.end]


class _SegmentBell(Bell):
    __slots__ = ("_key", "_session")

    def __init__(self, session: Session, key: Key) -> None:
        super().__init__()
        self._session, self._key = session, key

    def ring(self) -> None:
        """Tell the client."""
        self._session.hear(self._key)
