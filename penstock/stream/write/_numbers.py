"""The numbers of a writer's events, by which an event that is written again is recognised.

Either the caller gives them, or the writer does when it makes blocks. They only grow, over restarts under the same id,
too. Here they are as stored, where 0 is "none": one more than callers see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument
from penstock.model import shown
from penstock.stream.format import key_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.stream.write._block_plan import BlockPlan
    from penstock.stream.write._lanes import Lane, Lanes

__all__ = ["Numbers", "numbered_position"]

_NUMBER_MAX: Final = (1 << 63) - 2


class Numbers:
    """The numbers of one writer, whose blocks carry the hash ``writer``.

    All events up to ``floor`` are durable. ``resume`` is the highest number that was used before the writer was opened:
    only up to there can an event be in its segment already. ``are_given`` once the caller has numbered an event.
    """

    def __init__(self, writer: bytes, *, floor: int = 0, highest: int = 0) -> None:
        self.writer: Final = writer
        self.floor = floor
        self.resume: Final = max(floor, highest)
        self.are_given = False
        self._last = self.resume

    def next(self) -> int:
        """Return the number of the next event, above all that were used: the caller may have sent old ones again."""
        self._last = max(self._last, self.resume) + 1
        return self._last

    def place(self, lanes: Lanes, key: str | bytes | None, number: int | None) -> tuple[int, float, Lane | None]:
        """Return the number, the position and the lane of an event; no lane if the segment has the event already.

        The caller holds the lock of the lanes.
        """
        wanted = max(self._last, self.resume) + 1 if number is None else _stored_number(number)
        has_begun = self.are_given or self._last > self.resume  # to give out numbers since it was opened
        if has_begun and wanted <= self._last:
            raise BadArgument(
                f"event number {number} comes after {self._last - 1}: numbers only grow; to write again what may be "
                "there already, open the writer again"
            )
        position = numbered_position(key, wanted)
        lane = lanes.at(position)
        self.are_given, self._last = True, wanted
        is_there = wanted <= self.resume and wanted <= lane.segment.last_of(self.writer, position)
        return wanted, position, None if is_there else lane

    def give(self, plans: Iterable[BlockPlan]) -> int:
        """Number the events of blocks, unless the caller did; return the highest number."""
        highest = self.floor
        for plan in plans:
            if plan.run.numbers:
                plan.last_number = plan.run.numbers[plan.stop - 1]
            else:
                self._last = max(self._last, self.resume) + plan.count
                plan.last_number = self._last
            highest = max(highest, plan.last_number)
        return highest


def numbered_position(key: str | bytes | None, number: int) -> float:
    """Return the key position of a numbered event: without a key its number decides, also when it is sent again."""
    return key_position(str(number) if key is None else key)


def _stored_number(number: object) -> int:
    if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
        raise BadArgument(f"invalid event number {shown(number)}: use a whole number from 0 to {_NUMBER_MAX}")
    return number + 1
