"""The segments that a reader holds: a cursor for each, and whose turn is next.

A segment with something to read is in a queue. It gets there when a block arrives, from any thread, or when it is put
back after its turn; so a reader of very many segments need not look at all of them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.stream.read._cursor import Cursor
from penstock.stream.segment import WakeUp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stream.catalog import Key
    from penstock.stream.read._membership import Membership
    from penstock.stream.segment import Times

__all__ = ["HeldSegments"]


class HeldSegments:
    """The cursors of one reader, by segment. ``touched`` are those that returned events which do not count as read yet.

    ``wake_up`` is notified when a segment has something to read.
    """

    def __init__(self, membership: Membership, wake_up: WakeUp) -> None:
        self._membership, self._wake_up = membership, wake_up
        self.cursors: dict[Key, Cursor] = {}
        self.touched: set[Cursor] = set()
        self._ready: deque[Cursor] = deque()
        self._times: dict[Key, Times] = {}

    @property
    def has_ready(self) -> bool:
        """Whether a segment may have something to read."""
        return bool(self._ready)

    def put_last(self, cursor: Cursor) -> None:
        """Let a segment have its turn after the others; any thread may call it."""
        if not cursor.is_ready:
            cursor.is_ready = True
            self._ready.append(cursor)

    def put_first(self, cursor: Cursor) -> None:
        """Let a segment have the next turn again."""
        cursor.is_ready = True
        self._ready.appendleft(cursor)

    def hear(self, cursor: Cursor) -> None:
        """Note that a block has arrived in a segment, or that it has ended."""
        self.put_last(cursor)
        self._wake_up.notify()

    def next(self, event_size_max: int, *, first: bool) -> tuple[Cursor | None, bool]:
        """Return the next segment with something to read, in turn, and whether it is read to its end instead.

        If it is not the ``first`` of a batch, an error only ends the batch, and is raised with the next one.
        """
        while self._ready:
            cursor = self._ready.popleft()
            cursor.is_ready = False  # before it is looked at: a block that comes now puts it into the queue again
            if self.cursors.get(cursor.key) is not cursor:
                continue
            before = cursor.place, cursor.reached
            try:
                if cursor.load(event_size_max) is not None:
                    return cursor, False
                is_over = cursor.is_over()
            except BaseException as error:
                self.put_last(cursor)
                if first or not isinstance(error, PenstockError):
                    raise
                cursor.go_back(*before)
                return None, False
            if is_over:
                return cursor, True
        return None, False

    def go_back(self) -> None:
        """Return again what was returned and does not count as read."""
        for cursor in self.touched:
            cursor.go_back()
            self.put_last(cursor)

    def places(self, *, returned: bool) -> dict[Key, int]:
        """Return how far each segment was read, with what was returned last or without; any thread may call it."""
        return {one.key: one.reached if returned else one.place for one in list(self.cursors.values())}

    def times_of(self, key: Key) -> Times:
        """Return the times of a segment's events."""
        if key not in self._times:
            self._times[key] = self._membership.times_of(key)
        return self._times[key]

    def follow(self, held: Mapping[Key, int]) -> bool:
        """Add segments that the reader has been given, at these places; False if one has been truncated away since."""
        added = [self._add(key, held[key]) for key in sorted(held.keys() - self.cursors.keys())]
        return all(added)

    def _add(self, key: Key, place: int) -> bool:
        try:
            segment = self._membership.segment(key)
        except KeyError:
            return False
        cursor = Cursor(self._membership, key, segment, place=place, end=self._membership.end_of(key))
        cursor.wake_up = _SegmentWakeUp(self, cursor)
        segment.watch(cursor.wake_up)
        self.cursors[key] = cursor
        self.put_last(cursor)
        return True

    def remove(self, key: Key) -> Cursor:
        """Give up a segment; return its cursor."""
        cursor = self.cursors.pop(key)
        self._times.pop(key, None)
        cursor.segment.unwatch(cursor.wake_up)
        self.touched.discard(cursor)
        return cursor

    def unwatch(self) -> None:
        """Be woken by no segment any more; any thread may call it."""
        for cursor in list(self.cursors.values()):
            cursor.segment.unwatch(cursor.wake_up)


class _SegmentWakeUp(WakeUp):
    """Wakes a reader for one segment."""

    __slots__ = ("_cursor", "_held")

    def __init__(self, held: HeldSegments, cursor: Cursor) -> None:
        super().__init__()
        self._held, self._cursor = held, cursor

    def notify(self) -> None:
        """Put the segment into the queue, and wake the reader."""
        self._held.hear(self._cursor)
