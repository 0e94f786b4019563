"""Where segments end: noted when a store is closed, so that the next process that opens it need not look.

To find the end of a segment, its last plog is opened and its last block read, which takes a second for some thousand
segments. What was noted counts only if no process had the store in between: each process that opens a partition
announces another metadata plog, before it changes anything, and the ends name the one that was announced when they were
noted. Whatever happens to a process later, its successor finds another name, and looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.stream.format import StreamEnds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.log import MetadataManager
    from penstock.stream.catalog import Catalog
    from penstock.stream.segment._segment import Segment

__all__ = ["KnownEnds"]

_IN_RECORD_MAX: Final = 10_000  # segments, of some 15 bytes each, and those of one stream more


class KnownEnds:
    """The ends that the process before has noted, as long as they are true, by stream uid and segment."""

    def __init__(self, manager: MetadataManager, catalog: Catalog) -> None:
        self._manager, self._catalog = manager, catalog
        self._ends = catalog.take_ends(str(manager.partition.found))

    def get(self, uid: int, segment: int) -> tuple[int, int] | None:
        """Return where a segment ends that is not open, and how many events it has had; None if that is not known."""
        known = self._ends.get(uid)
        return None if known is None else known.get(segment)

    def take(self, uid: int, segment: int) -> tuple[int, int] | None:
        """Return where a segment ends and how many events it has had, once: from then on it may grow."""
        return self._ends.get(uid, {}).pop(segment, None)

    def note(self, at_work: Mapping[tuple[int, int], Segment]) -> None:
        """Note where segments end, as far as it is known; the store is about to be closed, and nothing is under way.

        Where a commit is only half there, nothing is noted: it is finished when the store is opened again.
        """
        if self._catalog.commits:
            return
        growing = {
            (state.uid, segment_id)
            for state in self._catalog.streams.values()
            for segment_id, segment in state.segments.items()
            if segment.end is None
        }
        ends = {(uid, segment): end for uid, known in self._ends.items() for segment, end in known.items()}
        for key, segment in at_work.items():  # a block that comes now, of a client that does not know yet, is refused
            end = segment.close()
            if end is not None and end[0]:
                ends[key] = end
        session = str(self._manager.partition.metadata.next)
        by_stream: dict[int, dict[int, tuple[int, int]]] = {}
        for uid, segment_id in sorted(ends.keys() & growing):
            by_stream.setdefault(uid, {})[segment_id] = ends[uid, segment_id]
        self._catalog.note_ends(*(StreamEnds(session, part) for part in _parts(by_stream)))


def _parts(
    ends: Mapping[int, dict[int, tuple[int, int]]],
) -> Iterator[dict[int, dict[int, tuple[int, int]]]]:
    """Divide ends by streams, so that no record is too large."""
    part: dict[int, dict[int, tuple[int, int]]] = {}
    size = 0
    for uid, segments in ends.items():
        part[uid] = segments
        size += len(segments)
        if size >= _IN_RECORD_MAX:
            yield part
            part, size = {}, 0
    if part:
        yield part
