"""What a reader returns for one event: light to make, because most callers want the event and nothing else."""

from __future__ import annotations

from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.model import EventPointer, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.stream.catalog import Key
    from penstock.stream.format import Block, Headers
    from penstock.stream.read._held_segments import Cursor
    from penstock.stream.segment import LargeBlock

__all__ = ["EventRead", "Milestone", "Page", "Trail", "guarded"]


class EventRead(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An event that was read; or, without an event, a ``checkpoint`` that the reader has come to.

    What it carries, where it is, and how far the reader has come with it in all its segments, is worked out when it is
    asked for.
    """

    _index: int
    _page: Page | Milestone
    event: Any

    @property
    def key(self) -> bytes | None:
        """The routing key; None if it was written without one."""
        return self._page.key(self._index)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers that it was written with; of a name that is repeated, the last value."""
        return dict(self._page.headers(self._index))

    @property
    def header_pairs(self) -> Headers:
        """All headers as pairs of name and value, in the order in which they were written."""
        return self._page.headers(self._index)

    @property
    def timestamp(self) -> int | None:
        """When the store's owner appended it, in milliseconds since 1970; None for a checkpoint."""
        return self._page.timestamp

    @property
    def pointer(self) -> EventPointer | None:
        """Where the event is; None for a checkpoint."""
        return self._page.pointer(self._index)

    @property
    def position(self) -> Position:
        """How far the reader has come with this event, in all its segments."""
        return self._page.position(self._index)

    @property
    def checkpoint(self) -> str | None:
        """The name of the checkpoint; None for an event."""
        return self._page.checkpoint

    def __repr__(self) -> str:
        if self.checkpoint is not None:
            return f"EventRead(checkpoint={self.checkpoint!r})"
        return f"EventRead({self.event!r}, {self.pointer})"


class Trail:
    """Where a reader was in all its segments: at first, and how it moved on since."""

    __slots__ = ("base", "moves")

    def __init__(self, base: dict[Key, int]) -> None:
        self.base = base
        self.moves: list[tuple[Key, int]] = []


class Milestone:
    """A checkpoint on a reader's way."""

    __slots__ = ("_position", "checkpoint")

    timestamp: Final = None

    def __init__(self, checkpoint: str, position: Position) -> None:
        self.checkpoint, self._position = checkpoint, position

    def key(self, _: int) -> None:
        """None: a checkpoint has no key."""

    def headers(self, _: int) -> Headers:
        """Return no headers: a checkpoint has none."""
        return ()

    def pointer(self, _: int) -> None:
        """None: a checkpoint is not an event that could be fetched."""

    def position(self, _: int) -> Position:
        """Return where the reader was."""
        return self._position


class Page:
    """Events of one block, from ``start`` up to ``stop``, that are being read one by one."""

    __slots__ = ("_keys", "_moves", "_trail", "block", "counted", "cursor", "indexes", "start", "stop")

    checkpoint: Final = None

    def __init__(self, cursor: Cursor, block: Block | LargeBlock, trail: Trail) -> None:
        self.cursor, self.block = cursor, block
        self.start, self.stop = cursor.first, cursor.stop
        self.counted = self.start  # events before this one count as read, also the one that was returned last
        self.indexes = iter(range(self.start, self.stop))
        self._trail, self._moves = trail, len(trail.moves)
        self._keys: Sequence[bytes | None] | None = None

    @property
    def index(self) -> int:
        """The index in the block of the event that comes next."""
        return self.stop - length_hint(self.indexes)

    def reads(self, deserialize: Callable[[bytes], Any] | None) -> Iterator[EventRead]:
        """Return what the reader returns for each of them."""
        events = self.block.events(self.start)
        events = events if self.stop == self.block.count else events[: self.stop - self.start]
        return map(EventRead, self.indexes, repeat(self), events if deserialize is None else map(deserialize, events))

    @property
    def timestamp(self) -> int:
        """When the events were appended."""
        return self.block.time_ms

    def key(self, index: int) -> bytes | None:
        """Return the key of an event; all keys of the block are decoded with the first."""
        if self._keys is None:
            column = self.block.columns[0]
            self._keys = () if column is None else column.to_pylist()
        return self._keys[index] if self._keys else None

    def headers(self, index: int) -> Headers:
        """Return the headers of an event."""
        column = self.block.columns[1]
        return () if column is None else tuple(column[index].as_py() or ())

    def pointer(self, index: int) -> EventPointer:
        """Return where an event is."""
        return EventPointer(*self.cursor.key, self.block.offset_of(index))

    def position(self, index: int) -> Position:
        """Return how far the reader has come with an event."""
        moves = dict(self._trail.moves[: self._moves])
        return Position.of(self._trail.base | moves | {self.cursor.key: self.block.offset_of(index + 1)})


def guarded(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a deserializer that cannot end an iteration: the events behind would be lost."""

    def checked(data: bytes) -> Any:  # noqa: ANN401 - whatever the serializer makes of it
        try:
            return deserialize(data)
        except StopIteration as error:
            raise RuntimeError("the serializer raised StopIteration") from error

    return checked
