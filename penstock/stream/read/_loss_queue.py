"""LossQueue: what was truncated away, or deleted, before a reader came to it. The reader raises each of them once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import DataTruncated, NoSuchStream
from penstock.model import StreamCut

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.stream.read._membership import Membership

__all__ = ["LossQueue"]


class LossQueue:
    """The errors that a reader still has to raise, one a call; any thread may add one."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._errors: deque[PenstockError] = deque()

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, error: PenstockError) -> None:
        """Let the reader raise an error."""
        self._errors.append(error)

    def next(self) -> PenstockError:
        """Return the error to raise now, once the group has noted that its reader raises it."""
        self._membership.note_told(*_lost_part(self._errors[0]))
        return self._errors.popleft()


def _lost_part(error: PenstockError) -> tuple[str, list[int]]:
    """Return the stream whose segments were lost, and which; none if it is all of the stream."""
    if isinstance(error, DataTruncated) and isinstance(error.place, StreamCut):
        return error.place.stream, list(error.place.offsets)
    assert isinstance(error, NoSuchStream), "nothing else is lost"
    return error.stream, []
