"""What a reader asks of its group, and the group of its readers, whichever process they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.errors import PenstockError
    from penstock.model import TimeWindow
    from penstock.ports import Clock
    from penstock.stream.catalog import Key
    from penstock.stream.segment import ReadableSegment, Times

__all__ = ["Assignment", "Member", "Membership"]


class Assignment(NamedTuple):
    """What a reader finds when it looks at its group: a checkpoint to come to, and the segments that are its own.

    Segments that another reader held meanwhile, and read further, are ``passed``: they are read from there on.
    """

    checkpoint: str | None
    held: dict[Key, int]
    passed: frozenset[Key] = frozenset()


class Member(Protocol):
    """A reader, as its group sees it; any thread may call these."""

    @property
    def reader_id(self) -> str:
        """The name of the reader."""

    @property
    def is_remote(self) -> bool:
        """Whether it is in another process, which may outlive this one."""

    @property
    def error(self) -> PenstockError | None:
        """The reason why the reader has ended; None while it reads."""

    def attend(self) -> None:
        """Look at the group before the next event."""

    def stop(self, error: PenstockError) -> None:
        """Read no more; ``error`` says why."""

    def miss(self, error: PenstockError) -> None:
        """Tell that something was truncated away, or deleted, before it was read."""

    def missed(self, lost: Mapping[Key, int]) -> dict[Key, int]:
        """Return of segments that are gone those that it has not read to the end, and where it was."""

    def places(self, *, returned: bool) -> dict[Key, int]:
        """Return how far it has come, with what it returned last or without."""

    def is_silent(self, now: float) -> bool:
        """Whether it was not called for as long as the lease."""

    def let_go(self) -> None:
        """Be woken by no segment any more."""


class Membership(Protocol):
    """What a reader asks of its group."""

    @property
    def clock(self) -> Clock:
        """The store's clock."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the group reads."""

    def sync(self, places: Mapping[Key, int], *, told: str | None, passing: bool) -> Assignment | None:
        """Come to a checkpoint that the reader has returned, or passes by; give and take segments.

        Return None if the reader was stopped.
        """

    def record(self, places: Mapping[Key, int] | None, *, durable: bool = False) -> None:
        """Note how far the reader has come, if it has, and remove readers that are silent."""

    def finish_segment(self, key: Key, place: int) -> None:
        """Note that a segment is read to its end."""

    def note_loss_reported(self, stream: str, segments: Sequence[int]) -> None:
        """Note that the reader has reported these segments, or the stream, as lost before they were read."""

    def leave(self, places: Mapping[Key, int]) -> None:
        """Leave the group, from these places."""

    def segment(self, key: Key) -> ReadableSegment:
        """Return a segment; ``KeyError`` if it was truncated away."""

    def bounds_of(self, key: Key) -> tuple[int, int | None] | None:
        """Return where a segment begins now and, if it is sealed, where it ends; None if it is gone."""

    def end_of(self, key: Key) -> int | None:
        """Return where the group ends in a segment, if it does not read on to the segment's own end."""

    def times_of(self, key: Key) -> Times:
        """Return the times of a segment's events, by watermarks."""

    def time_window(self, stream: str | None) -> TimeWindow | None:
        """Return between which times the group is."""

    @property
    def finished(self) -> bool:
        """Whether the group has read everything."""

    @property
    def has_company(self) -> bool:
        """Whether there are other readers, which might fall silent."""
