"""The reader as its group sees it: the segments that it holds, how far it has come, and whether it is still called.

The group, which any thread may run, and the reader's own thread share it. The group raises ``needs_sync``, stops the
reader and asks for its places; the reader's thread does everything else.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.stream.read._held_segments import HeldSegments, LossQueue
from penstock.stream.segment import WakeUp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.errors import PenstockError
    from penstock.stream.catalog import Key
    from penstock.stream.read._event_read import Page
    from penstock.stream.read._membership import Membership

__all__ = ["READER_LEASE_S", "ReaderMember"]

READER_LEASE_S: Final = 30.0


class ReaderMember:
    """A reader of this process; see :class:`penstock.stream.read.Member` for what its group calls."""

    is_remote: Final = False

    def __init__(self, membership: Membership, reader_id: str) -> None:
        self.reader_id: Final = reader_id
        self.membership: Final = membership
        self.wake_up: Final = WakeUp()
        self.held: Final = HeldSegments(membership, self.wake_up)
        self.losses: Final = LossQueue(membership)
        self.page: Page | None = None  # what the reader's thread returns events of
        self.needs_sync = True  # the reader looks at the group before the next event
        self.error: PenstockError | None = None  # why it reads no more
        self.calls = 0
        self.is_called = False
        self._kept_alive: set[object] = set()  # an object for each block that keeps it alive
        self._seen = membership.clock.elapsed()
        self._seen_pulse = (0, 0)

    def attend(self) -> None:
        """Look at the group before the next event."""
        self.needs_sync = True
        self.wake_up.notify()

    def stop(self, error: PenstockError) -> None:
        """Read no more; ``error`` says why."""
        self.error = error
        self.attend()

    def miss(self, error: PenstockError) -> None:
        """Raise later that something was truncated away, or deleted, before it was read."""
        self.losses.add(error)
        self.attend()

    def missed(self, lost: Mapping[Key, int]) -> dict[Key, int]:
        """Return of segments that are gone those that it has not read to the end, and where it was."""
        places, unread = self.places(returned=True), {}
        for key, recorded in lost.items():
            cursor, place = self.held.cursors.get(key), places.get(key, recorded)
            if cursor is None or place < cursor.limit:
                unread[key] = place
        return unread

    def places(self, *, returned: bool) -> dict[Key, int]:
        """Return how far it has come, with what it returned last or without."""
        page, places = self.page, self.held.places(returned=returned)
        if page is not None and page.cursor.key in places:
            index = page.index if returned else max(page.index - 1, page.counted)
            places[page.cursor.key] = page.block.offset_of(index)
        return places

    def note_call(self, now: float) -> None:
        """Note that a call of the reader has ended."""
        self.calls += 1
        self._seen_pulse, self._seen = self._pulse(), now
        self.is_called = False

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Be in use during the block; the lease begins anew at its end."""
        block = object()
        try:
            self._kept_alive.add(block)
            yield
        finally:
            self._seen = self.membership.clock.elapsed()
            self._kept_alive.discard(block)

    def is_silent(self, now: float) -> bool:
        """Whether it was neither called nor kept alive for as long as the lease.

        The call for an event that was ready leaves no time behind, only a trace: it may take two leases to notice.
        """
        pulse = self._pulse()
        if self.is_called or self._kept_alive or pulse != self._seen_pulse:
            self._seen_pulse, self._seen = pulse, now
        return now - self._seen > READER_LEASE_S

    def _pulse(self) -> tuple[int, int]:
        page = self.page
        return self.calls, 0 if page is None else page.index

    def let_go(self) -> None:
        """Be woken by no segment any more."""
        self.held.unwatch()
