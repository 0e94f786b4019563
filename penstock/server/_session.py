"""What a client has open on the server, for as long as its channel lasts.

On the channel the server tells when segments have grown, and what a reader or a writer has to know. What is told is
kept until it is sent, by whatever thread finds out; one thread sends it. Of a segment only that there is news is kept,
so a client that does not listen costs little. Every answer says how much was told before it: a client that has heard
that knows all that came before.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

from pyarrow import flight

from penstock.errors import BadArgument, PenstockError
from penstock.stream.segment import WakeUp
from penstock.wire import ARE_YOU_THERE, ByteBudget, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server._permissions import Visitor
    from penstock.stream import Engine
    from penstock.stream.catalog import Key, StreamState
    from penstock.stream.segment import Segment

__all__ = ["Session", "SessionOver", "news_of"]

_OPEN_MAX: Final = 100_000  # things that a client may have open at once
_ENDED_MAX: Final = 1_000  # things of which is kept why they ended
_LOOK_S: Final = 1.0  # how soon a client is missed that went without a word
_logger: Final = logging.getLogger("penstock.server")

SessionOver = flight.FlightUnavailableError
"""What a client is told that should connect again."""


class Session:
    """One client, of a ``visitor``; ``is_cancelled`` tells whether its channel is broken.

    It may have ``inflight`` bytes under way, and is asked whether it is there when it was ``silent_s`` silent for half.
    """

    def __init__(
        self,
        store: Engine,
        visitor: Visitor,
        *,
        is_cancelled: Callable[[], bool],
        inflight: float = math.inf,
        silent_s: float = math.inf,
    ) -> None:
        self.id: Final = secrets.token_hex(16)
        self.store, self.visitor, self.user = store, visitor, visitor.name
        self._lock = threading.Lock()
        self._ending = threading.Lock()  # held until everything is let go
        self._wake_up = WakeUp()
        self._news: dict[object, list[Any] | _Watch] = {}  # what to tell, by what it is about
        self._sent = 0
        self._watched: dict[Key, _Watch] = {}
        self._open: dict[int, Any] = {}
        self._ended: dict[int, PenstockError] = {}
        self._last = secrets.randbits(48)  # so that what was open in another session is not found in this one
        self._is_cancelled = is_cancelled
        self.budget: Final = ByteBudget(inflight)
        self._silent_s, self._heard, self._is_asked = silent_s, store.clock.elapsed(), False
        self.is_over = False

    # Whether it is there

    def hear(self) -> None:
        """Note that the client said something."""
        self._heard, self._is_asked = self.store.clock.elapsed(), False

    def is_silent(self) -> bool:
        """Whether the client was silent for too long; at half that time it is asked to say something."""
        silence = self.store.clock.elapsed() - self._heard
        if silence > self._silent_s / 2 and not self._is_asked:
            self._is_asked = True
            self.tell(ARE_YOU_THERE, [ARE_YOU_THERE])
        return silence > self._silent_s

    # What it has open

    def keep(self, thing: object) -> int:
        """Keep something open; return its number."""
        with self._lock:
            if self.is_over:
                raise SessionOver("the session is over")
            if len(self._open) >= _OPEN_MAX:
                raise BadArgument(f"a client has at most {_OPEN_MAX} writers, readers and transactions open")
            self._last += 1
            self._open[self._last] = thing
            return self._last

    def get(self, number: int, kind: type) -> Any:  # noqa: ANN401 - of that kind
        """Return what is open under a number; raise why it is not."""
        thing = self._open.get(number)
        if not isinstance(thing, kind):
            if self.is_over:
                raise SessionOver("the session is over")
            why = self._ended.get(number) or BadArgument(f"there is no {kind.__name__} {number} in this session")
            raise why.with_traceback(None)
        return thing

    def drop(self, number: int, why: PenstockError | None = None) -> None:
        """Forget what is open under a number; ``why`` is for who asks for it all the same."""
        with self._lock:
            self._open.pop(number, None)
            if why is not None:
                self._ended[number] = why
                if len(self._ended) > _ENDED_MAX:
                    del self._ended[next(iter(self._ended))]

    # What it is told

    def tell(self, about: object, message: list[Any]) -> None:
        """Send a message, in place of one about the same that was not sent yet."""
        self._tell(about, message)

    def _tell(self, about: object, news: list[Any] | _Watch) -> None:
        with self._lock:
            if self.is_over:
                return  # that its things end now is because it does: the client opens them again
            self._news[about] = news
        self._wake_up.notify()

    @property
    def told(self) -> int:
        """How many messages there are once everything is sent that is to be told now."""
        with self._lock:
            return self._sent + bool(self._news)

    def watch(self, key: Key) -> None:
        """Tell of a segment: at once, and whenever something happens to it."""
        stream, number = key
        try:
            segment = self.store.segments.get(stream, number)
            uid = self.store.catalog.stream(stream).uid
        except (KeyError, PenstockError):
            if len(self._news) >= _OPEN_MAX:  # a client that asks and does not listen
                raise BadArgument(f"there are {_OPEN_MAX} things to tell that were not heard yet") from None
            self.unwatch(key)
            self.tell(key, ["segment", *key, None])
            return
        watch = _Watch(self, key, uid, segment)
        with self._lock:
            known = self._watched.get(key)
            if known is None or known.segment is not segment:
                self._watched[key] = watch
            else:
                watch = known
        if watch is not known:
            segment.watch(watch)
            if known is not None:
                known.segment.unwatch(known)
            if self.is_over:
                self.unwatch(key)  # who ended it may not have seen this one
        self.note(watch)

    def unwatch(self, key: Key) -> None:
        """Tell of a segment no more."""
        with self._lock:
            watch = self._watched.pop(key, None)
        if watch is not None:
            watch.segment.unwatch(watch)

    def note(self, watch: _Watch) -> None:
        """Note that something happened to a segment."""
        self._tell(watch.key, watch)

    def run(self, send: Callable[[bytes], object]) -> None:
        """Send what there is to tell, until the session is over, or the client is gone."""
        while not self.is_over:
            if not self._wake_up.wait(_LOOK_S) and self.is_gone():
                return
            with self._lock:
                news, self._news = self._news, {}
                self._sent += bool(news)
            if news:  # of a segment, what is true now: who rang may have been late
                send(pack([one.message() if isinstance(one, _Watch) else one for one in news.values()]))

    def is_gone(self) -> bool:
        """Whether the client is gone."""
        with self._lock:  # after the end there is no channel to look at
            return self.is_over or self._is_cancelled()

    def end(self) -> None:
        """Let go of everything: the client is gone. Who calls it again returns when that is done, too."""
        with self._lock:
            self.is_over = True
        self._wake_up.notify()
        with self._ending:
            for key in list(self._watched):
                self.unwatch(key)
            with self._lock:
                things, self._open = list(self._open.values()), {}
            for thing in things:
                try:
                    thing.abandon()
                except Exception:  # whatever it is, the others go on
                    _logger.exception("something was left behind by a client that is gone")


class _Watch(WakeUp):
    """What is told of one segment."""

    __slots__ = ("_session", "_uid", "key", "segment")

    def __init__(self, session: Session, key: Key, uid: int, segment: Segment) -> None:
        super().__init__()
        self._session, self.key, self._uid, self.segment = session, key, uid, segment

    def notify(self) -> None:
        """Tell the client."""
        self._session.note(self)

    def message(self) -> list[Any]:
        """Return what to tell."""
        return ["segment", *self.key, self.news()]

    def news(self) -> list[int | None] | None:
        """Return how the segment is now."""
        state = self._session.store.catalog.streams.get(self.key[0])
        return None if state is None or state.uid != self._uid else news_of(state, self.key[1], self.segment)


def news_of(state: StreamState, number: int, segment: Segment) -> list[int | None] | None:
    """Return where a segment begins, how far it can be read and, if it is sealed, where it ends; None if it is gone."""
    one = state.segments.get(number)
    if one is None:
        return None
    end = one.end  # first: what is read before its end is known is read again, the other way round it would be missed
    return [state.head.get(number, 0), segment.tail, end]
