"""The logs of a store: their names, the sizes of their plogs, which belong to a segment, and which are to be deleted.

A log that cannot be deleted now, because the disk refuses, is *abandoned*: deleting it is tried again, at the latest
when the store is opened.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchLog, PenstockError
from penstock.model import BySize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.log import LogStream, MetadataManager, PlogSizes
    from penstock.stream.catalog import Catalog, StreamState

__all__ = ["CATALOG_LOG", "PLOGS_KEPT", "Logs", "plog_sizes", "segment_log", "watermark_log"]

CATALOG_LOG: Final = "catalog"
_SEGMENT_LOG: Final = re.compile(r"s(\d+)\.(\d+)")
_WATERMARK_LOG: Final = re.compile(r"m(\d+)")
_TRANSACTION_LOG: Final = re.compile(r"t[0-9a-f]+\.\d+")
PLOGS_KEPT: Final = 8  # what is kept by size or time lies in about so many plogs, so that it can be cut that finely
_PLOG_SIZE_MIN: Final = 16 << 10  # smaller ones would be mostly heads


def segment_log(uid: int, segment: int) -> str:
    """Return the name of a segment's log."""
    return f"s{uid}.{segment}"


def watermark_log(uid: int) -> str:
    """Return the name of the log of a stream's watermarks."""
    return f"m{uid}"


class Logs:
    """Makes, finds, splices and deletes the logs of one store."""

    def __init__(self, manager: MetadataManager, catalog: Catalog) -> None:
        self._manager, self._catalog = manager, catalog
        self._abandoned: deque[str] = deque()

    def new(self, name: str, sizes: PlogSizes | None = None) -> LogStream:
        """Make a log that is no segment's yet; most need no second plog, so none is allocated ahead."""
        self._catalog.check_open()
        self.delete_abandoned()
        return self._manager.log(name, sizes=sizes or replace(self._manager.partition.sizes, ahead=False))

    def open(self, name: str, sizes: PlogSizes) -> LogStream:
        """Return a log, which is made if it is not there."""
        return self._manager.log(name, sizes=sizes)

    def has(self, name: str) -> bool:
        """Whether there is a log of this name."""
        return self._manager.has_log(name)

    def existing(self, names: Iterable[str]) -> list[LogStream]:
        """Return those of some logs that are there."""
        return [self._manager.log(name) for name in names if self._manager.has_log(name)]

    def splice(self, plan: Mapping[LogStream, Sequence[LogStream]], labels: Mapping[str, bytes]) -> None:
        """Let logs take over others, all in one step; ``labels`` are by the name of the log that is taken over."""
        self._manager.splice(plan, {log: labels[log.name] for logs in plan.values() for log in logs})

    def delete(self, names: Iterable[str]) -> None:
        """Delete those of some logs that are there."""
        for name in names:
            with suppress(NoSuchLog):
                self._manager.delete_log(name)

    def drop(self, names: Sequence[str]) -> None:
        """Delete those of some logs that are there, now or, if the disk refuses, later."""
        try:
            self.delete(names)
        except PenstockError:
            self._abandoned.extend(names)

    def abandon(self, name: str) -> None:
        """Let a log be deleted some time later; takes no lock."""
        self._abandoned.append(name)

    def delete_abandoned(self) -> None:
        """Delete the logs that were abandoned."""
        while self._abandoned:
            name = self._abandoned.popleft()
            try:
                self.delete([name])
            except PenstockError:
                self._abandoned.append(name)
                raise

    def delete_leftovers(self) -> None:
        """Delete the logs of segments, streams and transactions that are gone: a crash came before they were."""
        catalog = self._catalog
        segments = {(state.uid, segment) for state in catalog.streams.values() for segment in state.segments}
        streams = {state.uid for state in catalog.streams.values()}
        promised = {log for record in catalog.commits.values() for part in record.logged for log in part.logs}
        promised |= {log for record in catalog.prepared.values() for part in record.parts for log in part.logs}
        for name in self._manager.logs():
            segment, marks = _SEGMENT_LOG.fullmatch(name), _WATERMARK_LOG.fullmatch(name)
            is_gone = segment and (int(segment[1]), int(segment[2])) not in segments
            is_gone = is_gone or (marks and int(marks[1]) not in streams)
            if is_gone or (_TRANSACTION_LOG.fullmatch(name) and name not in promised):
                self._manager.delete_log(name)


def plog_sizes(state: StreamState, sizes: PlogSizes) -> PlogSizes:
    """Return the sizes that the plogs of a stream's segments have, where those of others have ``sizes``."""
    retention = state.config.retention
    if not isinstance(retention, BySize):
        return sizes
    share = retention.size_bytes // (PLOGS_KEPT * len(state.current))
    largest = min(max(share, _PLOG_SIZE_MIN), sizes.largest)
    return replace(sizes, first=min(sizes.first, largest), largest=largest)
