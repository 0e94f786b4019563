"""Writer ids and the users of the server that they belong to.

An id of a stream belongs to the user who opened a writer with it first, until the stream is deleted; the catalog
records it. With the id go the numbers of the writer's events and batches, and its time.

A stream remembers ``OWNED_IDS_MAX`` ids. The next one takes the place of an id of the user that has the most of them,
the one that was not opened for longest. So a user that makes up ids pushes out its own; and an id that is forgotten
frees its place in the tables of writers, where it would push out those of others.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.stream.catalog import OWNED_IDS_MAX
from penstock.stream.format import WriterClaimed
from penstock.stream.segment import ENTRIES_MAX, TABLE_EVERY_BLOCKS, writer_hash

if TYPE_CHECKING:
    from penstock.stream.catalog import Catalog, StreamState
    from penstock.stream.segment import Segments
    from penstock.stream.write import Writers

__all__ = ["WriterIds"]

assert OWNED_IDS_MAX + TABLE_EVERY_BLOCKS <= ENTRIES_MAX, (
    "a stored table, and the blocks behind it, push out no owned id"
)


class WriterIds:
    """The writer ids of a store that belong to users."""

    def __init__(self, catalog: Catalog, segments: Segments, writers: Writers) -> None:
        self._catalog, self._segments, self._writers = catalog, segments, writers

    def claim(self, stream: str, writer_id: str, user: str) -> str:
        """Return the user that a writer id belongs to: this one from now on, if it belonged to none."""
        with self._catalog.lock:
            state = self._catalog.open_stream(stream)
            owner = state.owners.get(writer_id)
            if owner is None:
                dropped = self._least_used(state) if len(state.owners) >= OWNED_IDS_MAX else None
                self._catalog.commit(WriterClaimed(stream, writer_id, user, dropped))
                if dropped is not None:
                    self._forget(state, dropped)
            elif owner == user:
                state.owners.move_to_end(writer_id)  # last opened last
            return owner or user

    def _least_used(self, state: StreamState) -> str:
        """Return an id of the user with the most ids: one without an open writer, as long as there is one."""
        [(user, _)] = Counter(state.owners.values()).most_common(1)
        ids = [writer for writer, owner in state.owners.items() if owner == user]
        return next((writer for writer in ids if not self._writers.is_open(state.uid, writer)), ids[0])

    def _forget(self, state: StreamState, writer_id: str) -> None:
        before = {old for segment in state.current for old in segment.predecessors} & state.segments.keys()
        for segment_id in {segment.segment_id for segment in state.current} | before:
            self._segments.get(state.name, segment_id).forget_writer(writer_hash(writer_id))
