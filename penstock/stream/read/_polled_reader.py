"""A reader for callers that must not wait inside of it, such as an event loop.

Where a reader waits until something happens, a polled one returns None at once. The caller waits by itself: for
``wake_up``, but no longer than ``pause_s``. Events of the block that is being read are at hand in ``reads``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from penstock.stream.read._reader import LEASE_CHECK_S, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.stream.read._event_read import EventRead

__all__ = ["BLOCKS_AHEAD", "PolledReader"]

T = TypeVar("T")
BLOCKS_AHEAD: Final = 64  # that a poll has at hand, besides the one that it returns events of


class PolledReader(Reader):
    """Takes the place of a reader that was opened, and not used yet; one thread at a time calls it.

    After a poll that returned nothing, ``is_over`` says that nothing more is to come, and ``pause_s`` how soon to poll
    again although nothing happened: the group takes a reader that is not called for one that has died.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader._member, None, reader._event_size_max)
        self._deserialize = reader._deserialize
        self.member: Final = reader._member
        self.wake_up: Final = reader._member.wake_up
        self.is_over = False
        self.pause_s = 0.0

    @property
    def reads(self) -> Iterator[EventRead]:
        """The events at hand: good until the next call, and only while the group does not ask for a sync."""
        return self._reads

    @property
    def has_reads(self) -> bool:
        """Whether there are events at hand."""
        page = self.member.page
        return page is not None and page.index < page.stop

    def poll(self, read: Callable[[], T]) -> T:
        """Call a method of this reader, which returns None where it would wait."""
        self.is_over, self.pause_s = False, 0.0
        self.wake_up.wait(0)  # what was notified so far is looked at now
        found = read()
        if self.member.page is not None:
            self.member.page.cursor.read_ahead(BLOCKS_AHEAD)
        return found

    def turn_page(self) -> bool:
        """Have the events of the next block in ``reads``, if that waits for nothing; False if it takes a poll.

        Blocks of one event are many where they are, and a poll for each would cost more than the event.
        """
        member = self.member
        if member.needs_sync or member.losses or member.error is not None or self._is_record_due():
            return False
        self._count_returned()
        cursor = self._next_cursor() if self._held.is_next_at_hand else None
        if cursor is None:
            return False
        self._open_page(cursor)
        return True

    def take_back(self) -> None:
        """Return again what the last call has taken: its caller did not get it."""
        self._go_back()

    def leave(self, *, returned: bool) -> None:
        """Close the reader; ``returned`` says whether what it returned last counts as read."""
        self._leave(returned=returned)

    def _wait(self, deadline: float | None) -> bool:
        if self._membership.finished:
            self.is_over = True
            return False
        if self._held.has_ready or self._member.needs_sync:
            return True
        pause_s = self._pause_s(deadline)
        self.pause_s = LEASE_CHECK_S if pause_s is None else min(pause_s, LEASE_CHECK_S)
        return False
