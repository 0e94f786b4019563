"""Which groups of a cluster get new plogs: those that are well, in turn; one that failed, after a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GroupChoice"]

_PAUSE_S_MIN: Final = 1.0
_PAUSE_S_MAX: Final = 60.0


class GroupChoice:
    """The groups of a cluster, and until when each is left out."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.groups: Final = tuple(sorted(groups))
        self._pauses: dict[str, tuple[float, float]] = {}  # the end of the pause, and its length
        self._turn = 0

    def choose(self, *, now: float) -> str:
        """Return the group for the next plog: a well one if there is any, else the one whose pause ends first."""
        count = len(self.groups)
        turns = [self.groups[(self._turn + step) % count] for step in range(count)]
        group = min(turns, key=lambda name: max(self._pauses.get(name, (now, 0.0))[0], now))
        self._turn = self.groups.index(group) + 1
        return group

    def failed(self, group: str, *, now: float) -> None:
        """Leave a group out for a while, twice as long as the last time."""
        end, pause = self._pauses.get(group, (now, 0.0))
        if end <= now:
            pause = min(max(2 * pause, _PAUSE_S_MIN), _PAUSE_S_MAX)
            self._pauses[group] = (now + pause, pause)

    def is_well(self, group: str, *, now: float) -> bool:
        """Return whether a group gets plogs; one whose pause is over is tried again."""
        return self._pauses.get(group, (now, 0.0))[0] <= now

    def succeeded(self, group: str) -> None:
        """Note that a plog of a group was filled without a failure; a creation alone says nothing of its disks."""
        self._pauses.pop(group, None)
