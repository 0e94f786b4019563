"""The appends of a log that are under way on replicated plogs, kept with their data in case they have to move.

They follow each other without a gap, up to the end of the log. An append is forgotten once it is durable, and with it
all before it. The log's lock guards all of this but ``durable``, of which a value that is too low does no harm.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.log._actions import TRIES_MAX

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.log._appends import PendingLogAppend
    from penstock.log._protocols import LogPosition, LogTail
    from penstock.model import PlogId

__all__ = ["IN_FLIGHT_SIZE_MAX", "InFlight"]

IN_FLIGHT_SIZE_MAX: Final = 8 << 20  # of data that is kept for one log; the next append waits for the oldest
_LEFT_MAX: Final = 64  # plogs whose positions are remembered after the log has left them


class InFlight:
    """The appends under way, and the moves so far."""

    __slots__ = ("_left", "_moved_at", "_moves", "appends", "durable")

    def __init__(self) -> None:
        self.appends: Final[deque[PendingLogAppend]] = deque()
        self.durable = 0  # everything before this offset of the log is
        self._left: dict[PlogId, int] = {}  # the starts of plogs that moves have left
        self._moves, self._moved_at = 0, -1  # moves in a row, since this offset was durable

    def forget_durable(self) -> None:
        """Forget the appends that are durable."""
        while self.appends and self.appends[0].end <= self.durable:
            self.appends.popleft().data = ()

    def clear(self) -> None:
        """Forget all appends, each of which reports its own end, and the positions that were promised."""
        self.appends.clear()
        self._left.clear()

    def cut_at(self, end: int, tail: LogTail) -> bool:
        """Settle the appends before ``end``, where the plog of ``tail`` ends; return False if none can end there."""
        last = self.appends[-1].end if self.appends else tail.end
        behind = next((append.start for append in self.appends if append.end > end), last)
        if behind != end:
            return False
        while self.appends and self.appends[0].end <= end:
            append = self.appends.popleft()
            append.settle(append.place[0])
        self.durable = max(self.durable, end)
        return True

    def drop(self, appends: list[PendingLogAppend], error: PenstockError) -> None:
        """End the last appends with an error: they are not part of the log, or it is unknown whether they are."""
        for append in appends:
            append.settle(append.place[0], error)
        while self.appends and self.appends[-1].error is not None:
            self.appends.pop()
        self._left.clear()

    def leave(self, tail: LogTail) -> None:
        """Remember where a plog begins that the log leaves, because positions in it were promised."""
        self._left[tail.plog_id] = tail.start
        if len(self._left) > _LEFT_MAX:
            del self._left[next(iter(self._left))]

    def is_promised(self, position: LogPosition, offset: int) -> bool:
        """Return whether a position in a plog that the log has left means this offset of the log."""
        start = self._left.get(position.plog_id)
        return start is not None and start + position.offset == offset

    def count_move(self) -> bool:
        """Count a move; return False if there are too many since the last append that became durable."""
        self._moves = 1 if self.durable > self._moved_at else self._moves + 1
        self._moved_at = self.durable
        if self._moves > TRIES_MAX:
            self._moves = 0
            return False
        return True
