"""Segments that were truncated away before a group read them, and the readers that report it.

A loss stays in the group's state until a reader has raised it, so no crash and no closed reader hides it. Of several
readers one reports a segment: the one that held it, or the next that asks the coordinator for its segments.

A reader in another process may have read a lost segment since it last reported its position. Whether it has is decided
when it next says where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import DataTruncated, NoSuchStream
from penstock.model import StreamCut
from penstock.stream.catalog import flat, lost_segments
from penstock.stream.format import LossReported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.stream.catalog import Catalog, GroupState, Key, StreamState
    from penstock.stream.format import GroupRecord, SegmentsLost
    from penstock.stream.read import Member

__all__ = ["Losses"]


class Losses:
    """The losses of one group. ``commit`` records changes of the group, ``alert`` lets its readers sync.

    The caller holds the catalog's lock. ``readers`` is the coordinator's own table.
    """

    def __init__(
        self,
        group: str,
        catalog: Catalog,
        readers: Mapping[str, Member],
        *,
        commit: Callable[[GroupRecord], None],
        alert: Callable[[], None],
    ) -> None:
        self._group, self._catalog, self._readers = group, catalog, readers
        self._commit, self._alert = commit, alert
        self._heads: dict[str, Mapping[int, int]] = {}  # heads of the streams at the last search for losses
        self._reporters: dict[tuple[str, int | None], Member] = {}  # readers that are about to report a loss
        self._returned: dict[Key, tuple[Member, int]] = {}  # readers that were given all of a lost segment, up to there

        self._in_doubt: dict[Key, tuple[Member, int]] = {}  # readers that may have read a lost segment, from there on

    @property
    def _state(self) -> GroupState:
        return self._catalog.group(self._group)

    def skip(self, reader: Member | None) -> None:
        """Skip segments that were truncated away: the group goes on at the head, and their readers report the loss.

        A loss that no reader has to report is reported by ``reader``, or by the next one. Every truncation gives a
        stream another head object; as long as it is the same, no search through all segments is needed.
        """
        known = self._catalog.streams
        truncated = [known[name] for name in self._state.streams if known[name].head is not self._heads.get(name)]
        lost = lost_segments(self._state, truncated) if truncated else []
        for record in lost:
            self._skip_in(known[record.stream], record, reader)
        if lost:
            self._alert()
        self._heads |= {stream.name: stream.head for stream in truncated}
        if reader is not None:
            self._assign_unreported(reader)

    def _skip_in(self, stream: StreamState, record: SegmentsLost, reader: Member | None) -> None:
        missed = self._missed(stream, record, reader)
        returned = self._only_returned(stream.name, record, missed)
        together = {key[1]: place for places in (*missed.values(), returned) for key, place in places.items()}
        doubted = {} if _has_gap(stream, record, self._state.ends[stream.name]) else _doubted(missed, reader)
        # If nothing was missed so far, the reader of the new segments finds out what was lost before their heads.
        is_missed = any(places.keys() - doubted.keys() for places in missed.values())
        free = record.free if is_missed else dict.fromkeys(record.free, 0)
        self._commit(msgspec.structs.replace(record, free=free, missed=together))
        self._in_doubt |= doubted
        self._reporters |= {key: self._returned[key][0] for key in returned}
        self._reporters |= {key: member for key, (member, _) in doubted.items()}
        for member, places in missed.items():
            certain = {key[1]: place for key, place in places.items() if key not in doubted}
            if member is not None and certain:
                self._assign(member, stream.name, certain)

    def _missed(
        self, stream: StreamState, record: SegmentsLost, reader: Member | None
    ) -> dict[Member | None, dict[Key, int]]:
        """Return which reader has to report which segments that were lost before they were read to the end."""
        state, name = self._state, stream.name
        lost = {(name, segment) for segment in record.segments}
        unheld = {key: state.free[key] for key in lost & state.free.keys()} | dict.fromkeys(lost & state.waiting, 0)
        missed: dict[Member | None, dict[Key, int]] = {reader: unheld}
        for member in self._readers.values():
            held = state.readers[member.reader_id]
            unread = member.missed({key: held[key] for key in lost & held.keys()})
            missed[member] = missed.get(member, {}) | unread
        if not any(missed.values()) and _has_gap(stream, record, state.ends[name]):
            missed[reader] = {key: place for key, place in flat(state.places()).items() if key in lost}
        return missed

    def _only_returned(
        self, stream: str, record: SegmentsLost, missed: Mapping[Member | None, Mapping[Key, int]]
    ) -> dict[Key, int]:
        """Return where readers are in lost segments whose last events they were given, and may not come back from."""
        places = {}
        for member in self._readers.values():
            counted, returned = member.places(returned=False), member.places(returned=True)
            held = self._state.readers[member.reader_id].keys() - missed[member].keys()
            for key in [(stream, segment) for segment in record.segments]:
                if key in held and counted.get(key, 0) < returned.get(key, 0):
                    places[key] = counted[key]
                    self._returned[key] = member, returned[key]
        return places

    def confirm(self, reader: Member, places: Mapping[Key, int] | None = None) -> None:
        """Count what a reader was given of lost segments as read, if it is by these places; by default it is."""
        for key, (member, end) in list(self._returned.items()):
            if member is reader:
                del self._returned[key]
                if places is None or places.get(key, 0) >= end:
                    self.note_reported(key[0], [key[1]])
        self.settle_doubts(reader)

    def settle_doubts(self, reader: Member) -> None:
        """Drop losses that are none: the reader has just said where it is. It reports those that are."""
        asked = {key: place for key, (member, place) in self._in_doubt.items() if member is reader}
        unread = reader.missed(asked)
        for key in asked:
            del self._in_doubt[key]
            if key in unread:
                self._reporters.pop(key, None)
            else:
                self.note_reported(key[0], [key[1]])

    def _assign_unreported(self, reader: Member) -> None:
        """Let a reader report every loss that no other reader is about to report."""
        for stream, places in self._state.untold.items():
            mine = {segment: place for segment, place in places.items() if not self._is_assigned((stream, segment))}
            if mine or not (places or self._is_assigned((stream, None))):
                self._assign(reader, stream, mine)

    def _is_assigned(self, key: tuple[str, int | None]) -> bool:
        reporter = self._reporters.get(key)
        return reporter is not None and self._readers.get(reporter.reader_id) is reporter

    def _assign(self, reader: Member, stream: str, places: Mapping[int, int]) -> None:
        """Let a reader report that segments of a stream were lost, or all of it."""
        if places:
            head = StreamCut.of(stream, self._catalog.stream(stream).head)
            reader.miss(DataTruncated(StreamCut.of(stream, places), head=head))
        else:
            reader.miss(NoSuchStream(stream))
        self._reporters |= dict.fromkeys(_keys_of(stream, list(places)), reader)

    def note_reported(self, stream: str, segments: Sequence[int]) -> None:
        """Note that a reader has reported a loss."""
        for key in _keys_of(stream, segments):
            self._reporters.pop(key, None)
        untold = self._state.untold.get(stream)
        if untold is None:
            return
        reported = sorted(untold.keys() & segments)
        if reported or not segments:
            self._commit(LossReported(self._group, stream, reported))
            self._alert()

    def lose_stream(self, stream: str) -> None:
        """Let all readers report that a stream of theirs was deleted; they go on with the others."""
        if stream in self._state.untold:
            for reader in self._readers.values():
                self._assign(reader, stream, {})
            self._alert()


def _keys_of(stream: str, segments: Sequence[int]) -> list[tuple[str, int | None]]:
    """Return the keys of a loss: one for each segment, or one for the stream as a whole."""
    return [(stream, segment) for segment in segments] if segments else [(stream, None)]


def _doubted(missed: Mapping[Member | None, Mapping[Key, int]], reader: Member | None) -> dict[Key, tuple[Member, int]]:
    """Return what readers in other processes may have read since their last report; ``reader`` has just made one."""
    return {
        key: (member, place)
        for member, places in missed.items()
        if member is not None and member is not reader and member.is_remote
        for key, place in places.items()
    }


def _has_gap(stream: StreamState, record: SegmentsLost, ends: Mapping[int, int]) -> bool:
    """Whether there may have been events between the segments that were lost and those that the group goes on with."""
    new = [*record.free, *record.done]
    before = {predecessor for segment in new for predecessor in stream.segments[segment].predecessors}
    is_past_end = any(ends.get(segment, 0) for segment in record.done)
    return is_past_end or not before <= {*record.segments, *stream.segments}
