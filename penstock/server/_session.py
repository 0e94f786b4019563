"""The session of a client: its open writers, readers and transactions, for as long as its channel lasts.

The server sends notifications on the channel: that segments have grown, and events that concern the client's readers
and writers. Any thread may queue a notification; one thread sends them.

- The queue holds each changed segment once, however often it has changed, so a client that does not read its channel
  costs little memory.
- The client gets no notifications about a stream while its user lacks the permission to read it.
- Every answer to a call carries the number of notifications that were queued before it. A client that has received that
  many knows everything that happened before the answer.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from pyarrow import flight

from penstock.errors import BadArgument, LimitReached, LogFenced, NoSuchStream, PenstockError, StoreFenced
from penstock.server._blocks import NewBlocks
from penstock.stream.segment import WakeUp
from penstock.wire import ARE_YOU_THERE, ByteBudget, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.server._permissions import Principal
    from penstock.server._quotas import Quotas
    from penstock.stream import Engine
    from penstock.stream.catalog import Key, StreamState
    from penstock.stream.segment import Segment

__all__ = ["FENCED", "OpenHandle", "Session", "SessionOver", "update_of"]

_ENDED_MAX: Final = 1_000  # things of which is kept why they ended
_UNSENT_MAX: Final = 1_000  # notifications of a client that does not read them, besides those of what it has open
_NEW_BLOCKS_MAX: Final = 16 << 10  # bytes of new blocks in one message
_POLL_S: Final = 1.0  # how soon a broken channel is noticed
_logger: Final = logging.getLogger("penstock.server")

SessionOver = flight.FlightUnavailableError
FENCED: Final = (LogFenced, StoreFenced)
"""Errors by which a server learns that it does not own the store any more: for its clients, a lost connection."""
"""The error of a call after which the client connects again."""


@runtime_checkable
class OpenHandle(Protocol):
    """A writer or a reader that a client has open."""

    @property
    def streams(self) -> Sequence[str]:
        """The streams that it writes to, or reads."""


class Session:
    """One client; ``ask`` returns its principal of this moment, ``is_cancelled`` whether its channel is broken.

    What it has open counts in ``quotas`` for ``owner``, its user, which is None on a server without users.
    It may have ``inflight`` bytes under way. After half of ``silent_s`` without a call it is asked for one.
    ``new_blocks`` returns the blocks between two places of a segment, ``server_ends`` whether the server shuts down.
    """

    def __init__(
        self,
        store: Engine,
        ask: Callable[[], Principal],
        *,
        quotas: Quotas,
        owner: str | None,
        is_cancelled: Callable[[], bool],
        inflight: float = math.inf,
        silent_s: float = math.inf,
        new_blocks: Callable[[Segment, int, int], NewBlocks] = lambda *_: [],
        server_ends: Callable[[], bool] = lambda: False,
    ) -> None:
        self.id: Final = secrets.token_hex(16)
        self.block_name: Final = secrets.token_hex(16)  # at the port for blocks
        self.block_key: Final = secrets.token_bytes(32)
        self.store, self.ask = store, ask
        self.user: Final = ask().name
        self.owner: Final = owner
        self._quotas = quotas
        self._lock = threading.Lock()
        self._ending = threading.Lock()  # held until everything is let go
        self.opening: Final = threading.Lock()  # held while a reader is opened
        self._wake_up = WakeUp()
        self._updates: dict[object, list[Any] | _Watch] = {}  # to be sent, by subject
        self._sent = self._promised = 0  # messages; so many were announced to the client by answers
        self._watched: dict[Key, _Watch] = {}
        self._withheld: dict[Key, _Watch] = {}  # because their streams may not be read now
        self._open: dict[int, tuple[Any, str]] = {}  # with the kind that it counts as
        self._ended: dict[int, PenstockError] = {}
        self._last = secrets.randbits(48)  # so that what was open in another session is not found in this one
        self._is_cancelled, self.new_blocks, self.server_ends = is_cancelled, new_blocks, server_ends
        self.budget: Final = ByteBudget(inflight)
        self._silent_s, self._seen_at, self._is_asked = silent_s, store.clock.elapsed(), False
        self.is_over = False

    @property
    def principal(self) -> Principal:
        """The user of the client, with its grants of this moment."""
        return self.ask()

    # Whether the client is alive

    def note_seen(self) -> None:
        """Note that the client has sent something."""
        self._seen_at, self._is_asked = self.store.clock.elapsed(), False

    def is_silent(self) -> bool:
        """Whether the client was silent for too long, or reads nothing; at half that time it is asked for a call."""
        with self._lock:
            if len(self._updates) > _UNSENT_MAX + len(self._watched) + 2 * len(self._open):
                return True
        silence = self.store.clock.elapsed() - self._seen_at
        if silence > self._silent_s / 2 and not self._is_asked:
            self._is_asked = True
            self.notify(ARE_YOU_THERE, [ARE_YOU_THERE])
        return silence > self._silent_s

    # What it has open

    def add(self, thing: object, kind: str = "handles") -> int:
        """Add something that the client has open, and that counts as one of a kind; return its number."""
        with self._lock:
            if self.is_over:
                raise SessionOver("the session is over")
            self._quotas[kind].take(self.owner)
            self._last += 1
            self._open[self._last] = thing, kind
            return self._last

    def recount(self, number: int, kind: str) -> None:
        """Count what is open under a number as another kind from now on; above the limit it stays what it was."""
        with self._lock:
            thing, before = self._open.get(number, (None, kind))
            if before != kind:
                with suppress(LimitReached):
                    self._quotas[kind].take(self.owner)
                    self._quotas[before].give(self.owner)
                    self._open[number] = thing, kind

    def get(self, number: int, kind: type) -> Any:  # noqa: ANN401 - of that kind
        """Return what is open under a number; raise why it is not."""
        thing, _ = self._open.get(number, (None, ""))
        if not isinstance(thing, kind):
            if self.is_over:
                raise SessionOver("the session is over")
            why = self._ended.get(number) or BadArgument(
                f"invalid number {number}: this client has nothing open under it that the operation is about"
            )
            raise why.with_traceback(None)
        return thing

    def has(self, number: int) -> bool:
        """Whether something is open under a number."""
        return number in self._open

    def drop(self, number: int, why: PenstockError | None = None) -> None:
        """Remove what is open under a number; later calls to it raise ``why``."""
        with self._lock:
            _, kind = self._open.pop(number, (None, None))
            if kind is not None:
                self._quotas[kind].give(self.owner)
            if why is not None:
                self._ended[number] = why
                if len(self._ended) > _ENDED_MAX:
                    del self._ended[next(iter(self._ended))]

    # Notifications

    def notify(self, about: object, message: list[Any] | _Watch) -> None:
        """Queue a message, in place of one about the same subject that was not sent yet."""
        with self._lock:
            if self.is_over:
                return  # they end because it does: the client opens them again
            self._updates[about] = message
        self._wake_up.notify()

    @property
    def notified(self) -> int:
        """The number of messages, once all are sent that are queued now."""
        with self._lock:
            self._promised = max(self._promised, self._sent + bool(self._updates))
            return self._promised

    def watch(self, key: Key) -> None:
        """Notify the client of the state of a segment: at once, and whenever it changes."""
        stream, number = key
        try:
            segment = self.store.segments.get(stream, number)
            uid = self.store.catalog.stream(stream).uid
        except (KeyError, NoSuchStream, BadArgument):
            self.unwatch(key)
            self.notify(key, ["segment", *key, None, []])
            return
        watch = _Watch(self, key, uid, segment)
        with self._lock:
            if self.is_over:
                raise SessionOver("the session is over")
            known = self._watched.get(key)
            if known is None:
                self._quotas["watches"].take(self.owner)
            if known is None or known.segment is not segment:
                self._watched[key] = watch
            else:
                watch = known
        if watch is not known:
            segment.watch(watch)
            if known is not None:
                known.segment.unwatch(known)
            if self._watched.get(key) is not watch:  # the end of the session came before it was watched
                segment.unwatch(watch)
        self.notify(key, watch)

    def unwatch(self, key: Key) -> None:
        """End the notifications of a segment."""
        with self._lock:
            watch = self._watched.pop(key, None)
            self._withheld.pop(key, None)
            if self._updates.get(key) is watch:
                self._updates.pop(key, None)
        if watch is not None:
            watch.segment.unwatch(watch)
            self._quotas["watches"].give(self.owner)

    def run(self, send: Callable[[bytes], object]) -> None:
        """Send notifications, until the session is over, or the client is gone."""
        while not self.is_over:
            if not self._wake_up.wait(_POLL_S) and self.is_gone():
                return
            self._readmit()
            with self._lock:
                updates, self._updates = self._updates, {}
                is_due = bool(updates) or self._promised > self._sent  # a promised one may have become needless
                self._sent += is_due
            if is_due:
                send(pack(list(_messages(self._permitted(updates)))))

    def _permitted(self, updates: dict[object, list[Any] | _Watch]) -> list[list[Any] | _Watch]:
        """Return what may be sent; what is about streams that the user may not read is withheld until it may."""
        may_read = self._may_read()
        refused = {
            update.key: update
            for update in updates.values()
            if isinstance(update, _Watch) and not may_read(update.key[0])
        }
        with self._lock:
            self._withheld |= {key: watch for key, watch in refused.items() if self._watched.get(key) is watch}
        return [update for key, update in updates.items() if key not in refused]

    def _readmit(self) -> None:
        """Queue again what was withheld and may be sent now."""
        if self._withheld:
            may_read = self._may_read()
            with self._lock:
                for key in [key for key in self._withheld if may_read(key[0])]:
                    self._updates.setdefault(key, self._withheld.pop(key))

    def _may_read(self) -> Callable[[str], bool]:
        """Return which streams the user may read now."""
        try:
            return partial(self.principal.may, "read")
        except PenstockError:  # who it is cannot be proved any more
            return lambda _: False

    def is_gone(self) -> bool:
        """Whether the client is gone."""
        with self._lock:  # after the end there is no channel to look at
            return self.is_over or self._is_cancelled()

    def cut_off(self) -> None:
        """Send the client nothing more; :meth:`end` closes what it has open."""
        with self._lock:
            self.is_over = True
        self._wake_up.notify()

    def end(self) -> None:
        """Close everything: the client is gone, or the server ends. A second call returns when that is done, too."""
        self.cut_off()
        with self._ending:
            for key in list(self._watched):
                self.unwatch(key)
            with self._lock:
                things, self._open = list(self._open.values()), {}
            for thing, kind in things:
                try:
                    thing.abandon()
                except PenstockError as error:  # as of a store that was fenced
                    _logger.warning("something that a client had open could not be closed: %s", error)
                except Exception:  # whatever it is, the others go on
                    _logger.exception("something that a client had open could not be closed")
                finally:
                    self._quotas[kind].give(self.owner)


class _Watch(WakeUp):
    """Notifies a client of one segment."""

    __slots__ = ("_sent_to", "_session", "_uid", "key", "segment")

    def __init__(self, session: Session, key: Key, uid: int, segment: Segment) -> None:
        super().__init__()
        self._session, self.key, self._uid, self.segment = session, key, uid, segment
        self._sent_to: int | None = None  # the tail in the last message

    def notify(self) -> None:
        """Queue the segment for the client."""
        self._session.notify(self.key, self)

    def message(self, budget: int) -> tuple[list[Any], int]:
        """Return the message, with the state of the segment now, and how many bytes of new blocks it has.

        New blocks come along if there is room for all of them. The thread that sends is the only one that calls this.
        """
        state, blocks, size = self._session.store.catalog.streams.get(self.key[0]), NewBlocks(), 0
        update = None
        if state is not None and state.uid == self._uid:
            update = update_of(state, self.key[1], self.segment)
        if update is not None:
            first, self._sent_to = self._sent_to, update[1]
            if first is not None and first < update[1] <= first + budget:
                blocks, size = self._session.new_blocks(self.segment, first, update[1]), update[1] - first
        return ["segment", *self.key, update, blocks], size


def _messages(updates: Iterable[list[Any] | _Watch]) -> Iterator[list[Any]]:
    """Return what is sent: of a segment its state now, because it may have changed since it was queued."""
    budget = _NEW_BLOCKS_MAX
    for update in updates:
        if isinstance(update, _Watch):
            message, size = update.message(budget)
            budget -= size
            yield message
        else:
            yield update


def update_of(state: StreamState, number: int, segment: Segment) -> tuple[int, int, int | None] | None:
    """Return where a segment begins, how far it can be read and, if it is sealed, where it ends; None if it is gone."""
    segment_state = state.segments.get(number)
    if segment_state is None:
        return None
    # The end first: a tail that is read before the end is read again; the other way round, events would be missed.
    end = segment_state.end
    return state.head.get(number, 0), segment.tail, end
