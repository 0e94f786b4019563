"""What a group may read next: per key in order, nothing left out, nothing twice but what the documentation allows.

Events are numbered by key. A track knows between which numbers the next event of its key is: just one, but after a
kill, which may take back what was not durable. An event that is skipped must have been truncated away, and a reader of
the group must say so at some time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(eq=False)
class Track:
    """One key of one stream, as the group has read it."""

    written: int = 0
    low: int = 0  # the next event is this one,
    high: int = 0  # or one up to this
    durable: int = 0  # what comes before never comes again
    end: int | None = None  # where the group ends
    reader: str | None = None  # who was given the last event
    floors: list[int] = field(default_factory=list)  # the first event that is left, after each truncation

    @property
    def limit(self) -> int:
        """How many events the group is to read."""
        return self.written if self.end is None else self.end

    def place(self, low: int, high: int) -> None:
        """Read on from somewhere else, durably."""
        self.low, self.high, self.durable = low, high, low

    def truncations_of(self, first: int, last: int) -> int:
        """Return after how many truncations these events were gone; fail if they are not."""
        number = next((number for number, floor in enumerate(self.floors, 1) if floor >= last), None)
        assert number is not None, f"events {first} to {last - 1} were skipped, and are there"
        return number


@dataclass
class Stream:
    """One stream that the group reads; another of the same name is another one."""

    tag: str
    tracks: dict[str, Track] = field(default_factory=dict)
    is_sealed: bool = False
    skipped: int = 0  # after how many truncations all was gone that was skipped
    told: int = 0  # how many truncations there were when a reader last said that something was truncated away
    truncations: int = 0

    def skip(self, track: Track, stop: int) -> None:
        """Note that the group goes on at an event, and has not read those before it."""
        if track.high < stop:
            self.skipped = max(self.skipped, track.truncations_of(track.high, stop))

    def check_told(self) -> None:
        """Fail if something was skipped and no reader said so."""
        assert self.told >= self.skipped, f"no reader was told that events of {self.tag} were truncated away"

    def has_unread(self) -> bool:
        """Whether there are events that the group has not been given."""
        return any(max([track.high, *track.floors]) < track.limit for track in self.tracks.values())

    def check_finished(self) -> None:
        """Fail if there is anything to read."""
        for key, track in self.tracks.items():
            try:
                self.skip(track, track.limit)
            except AssertionError as error:
                raise AssertionError(f"{self.tag}, key {key}: {error}") from None


class GroupModel:
    """A group: its streams, its readers and what each of them was given last."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}  # by tag, which every event carries
        self.late: set[str] = set()  # streams that were deleted, and of which a client may have been sent events before
        self.pending: dict[str, dict[Track, int]] = {}  # by reader: the first event of a key that does not count yet

    def tracks(self) -> Iterator[Track]:
        """Return all keys of all streams."""
        for stream in self.streams.values():
            yield from stream.tracks.values()

    def give(self, reader: str, events: Iterable[bytes]) -> None:
        """Check what a reader was given."""
        pending: dict[Track, int] = {}
        for event in events:
            tag, key, text = event.decode().split(":")
            if tag in self.late:
                continue
            assert tag in self.streams, f"{event!r} is not of a stream of the group"
            stream, number = self.streams[tag], int(text)
            track = stream.tracks[key]
            assert number >= track.low, f"{event!r} was read already: the next is {track.low}"
            assert number < track.limit, f"{event!r} is behind the end of the group, {track.limit}"
            stream.skip(track, number)
            track.low = track.high = number + 1
            track.reader = reader
            pending.setdefault(track, number)
        self.pending[reader] = pending

    def count(self, reader: str) -> None:
        """Note that what a reader was given counts as read."""
        self.pending[reader] = {}

    def waiting(self, reader: str) -> dict[Track, int]:
        """Return what does not count yet; where another reader went on, because the segment is gone, nothing does."""
        found = self.pending.get(reader, {})
        return {track: number for track, number in found.items() if track.reader == reader}

    def commit(self, reader: str) -> None:
        """Note that what a reader was given counts as read, durably."""
        self.count(reader)
        for track in self.tracks():
            if track.reader == reader:
                track.durable = track.low

    def leave(self, reader: str) -> None:
        """Note that a reader is gone, and that what it was given last comes again."""
        for track, number in self.waiting(reader).items():
            track.low = track.high = number
        self.pending.pop(reader, None)
        for track in self.tracks():
            if track.reader == reader:
                track.durable = track.low

    def lose(self, reader: str) -> None:
        """Note that a reader is gone without a word, and comes again from anywhere behind what was durable."""
        for track, number in self.waiting(reader).items():
            track.high = number
        self.pending.pop(reader, None)
        for track in self.tracks():
            if track.reader == reader:
                track.low, track.reader = track.durable, None

    def record(self) -> None:
        """Note that all positions were made durable."""
        waiting = {track: number for reader in self.pending for track, number in self.waiting(reader).items()}
        for track in self.tracks():
            track.durable = max(track.durable, waiting.get(track, track.low))

    def kill(self) -> None:
        """Note that the process ended without a word."""
        for reader in self.pending:
            for track, number in self.waiting(reader).items():
                track.high = number
        for track in self.tracks():
            track.low = track.durable
        self.pending = {}

    def snapshot(self) -> dict[Track, tuple[int, int]]:
        """Return where the group is."""
        return {track: (track.low, track.high) for track in self.tracks()}

    def leave_all(self) -> None:
        """Note that all readers are gone."""
        for reader in list(self.pending):
            self.leave(reader)

    def reset(self, places: Mapping[Track, tuple[int, int]]) -> None:
        """Note that the group reads on from somewhere else, and has no readers any more."""
        self.leave_all()
        for track, (low, high) in places.items():
            track.place(low, high)
