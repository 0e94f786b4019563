"""The settings of plogs in an object store, and what each of them costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import BadArgument

__all__ = ["JOURNAL_WINDOW", "ObjectSettings"]

JOURNAL_WINDOW: Final = 8
"""The most journal objects that any owner has under way. A new owner takes as many names, so that no put of an owner
before it can succeed at a later one; a larger number needs a new format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSettings:
    """How appends are grouped, and when the journal is compacted."""

    group_wait_s: float = 0.02  # between two groups; an append waits so long for others, at most
    group_size_max: int = 8 << 20  # bytes of a group, which is put as one object
    puts_in_flight_max: int = 4  # groups under way at the same time
    pending_size_max: int = 64 << 20  # bytes that wait or are under way; an append above that waits
    part_size_min: int = 1 << 20  # bytes of one plog in a group from which on they get an object of their own
    unavailable_max_s: float = 60.0  # how long the store repeats a request before it stops
    checkpoint_objects: int = 256  # journal objects after which the next opening should not have to read them
    checkpoint_size: int = 64 << 20  # the same in bytes
    compact_size_min: int = 1 << 20  # bytes of a sealed plog from which on it gets an object of its own
    journal_size_max: int = 256 << 20  # bytes in journal objects that are still needed, before they are compacted
    journal_objects_max: int = 4096  # the same in objects
    compaction_share: float = 1.0  # bytes that compaction may put, as a share of those that were appended

    def __post_init__(self) -> None:
        if not 1 <= self.puts_in_flight_max <= JOURNAL_WINDOW:
            raise BadArgument(
                f"invalid puts_in_flight_max {self.puts_in_flight_max}: use a number from 1 to {JOURNAL_WINDOW}"
            )
        for name in self.__slots__:
            value = getattr(self, name)
            if value < 0 or (name in _POSITIVE and not value):
                raise BadArgument(f"invalid {name} {value}: use a number above 0")


_POSITIVE: Final = frozenset(
    {"group_size_max", "pending_size_max", "checkpoint_objects", "checkpoint_size", "journal_objects_max"}
)
