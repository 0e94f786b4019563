"""The catalog: which streams and reader groups exist, remembered in a log of its own.

Every change is a record, durable before its caller goes on, unless the caller says that it may be forgotten in a
crash: then it becomes durable with the next one that may not. Records are decoded again before they are written, so
that nothing is written that cannot be read. Records of one commit are kept all or none. When the
log has grown to several times what there is to know, a snapshot is written and the plogs before it are deleted, so
opening a store reads no more than that.

On a full disk the log may drop what was appended and not waited for: when it cannot go on in its next plog, what
lies there is not part of it. Such records count in memory already, and later ones build on them; so they are appended
again before any other.

After a failed disk the catalog takes no more changes, with one exception: what readers change goes on in memory, so
that everything acknowledged can still be read. When the store is opened again, it knows nothing of that.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from penstock.errors import (
    AppendTooLarge,
    BadArgument,
    CpoUnavailable,
    DiskFailed,
    DiskFull,
    LogUnavailable,
    NoSuchGroup,
    NoSuchStream,
    PenstockError,
    StoreClosed,
)
from penstock.model import check_kind
from penstock.ports import uninterrupted
from penstock.stream.catalog._catalog_state import replay, snapshot_appends
from penstock.stream.format import encode_checked, encode_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log import LogStream, PendingLogAppend
    from penstock.stream.catalog._group_state import GroupState
    from penstock.stream.catalog._stream_state import StreamState
    from penstock.stream.format import Committed, Committing, Prepared, Record, StreamEnds

__all__ = ["Catalog"]

_SNAPSHOT_SHARE: Final = 4  # the log grows to so many times a snapshot before there is another
_SNAPSHOT_EVERY_MIN: Final = 1 << 20
_UNSETTLED_MAX: Final = 64  # appends that are not known to be durable
# After these, nothing of what was to be written is kept, and the log goes on.
_REFUSED: Final = (DiskFull, CpoUnavailable, LogUnavailable)
_logger: Final = logging.getLogger("penstock.stream")


class Catalog:
    """The catalog of one store. Callers hold ``lock`` from looking to changing, so that nothing comes between."""

    def __init__(self, log: LogStream) -> None:
        self.lock: Final = threading.RLock()
        self.admit: Callable[[Record], object] = lambda _: None  # raises why a change is refused
        self._log = log
        self._failed: PenstockError | None = None
        self._closed = False
        self._owed: list[list[Record]] = []  # they count, and the log does not have them: written before any others
        self._unsettled: list[tuple[PendingLogAppend, list[Record]]] = []  # appended, and not known to be durable
        self._state, snapshot_size = replay(log)
        self._snapshot_at = _next_snapshot(snapshot_size)
        self._grown = log.length - log.start

    @property
    def streams(self) -> dict[str, StreamState]:
        """All streams, by name."""
        return self._state.streams

    @property
    def groups(self) -> dict[str, GroupState]:
        """All groups, by name."""
        return self._state.groups

    @property
    def commits(self) -> dict[str, Committing]:
        """The commits that are under way, by transaction."""
        return self._state.commits

    @property
    def committed(self) -> dict[str, None]:
        """The transactions that were committed last."""
        return self._state.committed

    @property
    def prepared(self) -> dict[str, Prepared]:
        """The prepared transactions, by id."""
        return self._state.prepared

    @property
    def is_failed(self) -> bool:
        """Whether it is not known what was kept of the last change: opening the store again finds out."""
        return self._failed is not None

    @property
    def newest_commit(self) -> Committed | None:
        """The commit that the last record is of, if it is of one: only then its block may not be durable."""
        return self._state.newest_commit

    @property
    def next_uid(self) -> int:
        """The number of the next new stream."""
        return self._state.next_uid

    def stream(self, name: str) -> StreamState:
        """Return the state of a stream; ``NoSuchStream`` if there is none of that name."""
        with self.lock:
            try:
                return self._state.streams[name]
            except KeyError:
                raise NoSuchStream(name) from None

    def open_stream(self, name: str) -> StreamState:
        """Return a stream, for a user: the store must be open, and the name a text."""
        self.check_open()
        check_kind("name", name, str)
        return self.stream(name)

    def keeps_keys(self, name: str) -> bool:
        """Whether a stream stores the keys of its events."""
        state = self._state.streams.get(name)
        return state is None or state.config.keep_keys

    def check_open(self) -> None:
        """Refuse to go on with a store that was closed."""
        if self._closed:
            raise StoreClosed("the store")

    def group(self, name: str) -> GroupState:
        """Return a reader group."""
        with self.lock:
            try:
                return self._state.groups[name]
            except KeyError:
                raise NoSuchGroup(name) from None

    @uninterrupted
    def commit(self, *records: Record, durable: bool = True) -> None:
        """Take in the records, all or none; once they are durable, unless they may be forgotten in a crash."""
        with self.lock:
            for record in records:
                self.admit(record)
            self._write(list(records), encode_checked(records), durable=durable)
            self._take_in(*records)

    @uninterrupted
    def commit_reading(self, *records: Record, durable: bool) -> None:
        """Take in what readers change, as :meth:`commit` does; once the disk has failed, in memory only."""
        with self.lock:
            if not isinstance(self._failed, DiskFailed):
                try:
                    self._write(list(records), encode_checked(records), durable=durable)
                except DiskFailed as error:
                    _logger.warning("readers go on, and their positions are not kept: %s", error)
            self._take_in(*records)

    def _take_in(self, *records: Record) -> None:
        for record in records:
            self._state.apply(record)
        self._try_snapshot()

    def submit(self, record: Record) -> PendingLogAppend:
        """Write a record of a change that is about to be made; the caller settles it, or settles what takes it back.

        What the caller submits to the journal afterwards is durable only if the record is.
        """
        with self.lock:
            pending = self._write([record], encode_checked([record]), durable=False, certain=True)
            assert pending is not None
            return pending

    def settle(self, record: Record, pending: PendingLogAppend | None = None) -> None:
        """Take in a record of what has happened; if the disk refuses it, it is written with the next one.

        Return when it is durable if it was submitted before; otherwise it may be forgotten in a crash.
        """
        with self.lock:
            records = [record] if pending is None else []
            data = encode_checked(records) if records else b""
            self._state.apply(record)
            try:
                self._write(records, data, durable=pending is not None)
            except PenstockError:
                if records:
                    self._owed.append(records)
            else:
                self._try_snapshot()

    def take_ends(self, session: str) -> dict[int, dict[int, tuple[int, int]]]:
        """Return where segments ended when the session was closed, and their events; nothing if it was another."""
        with self.lock:
            ends, self._state.ends = self._state.ends, {}
        return ends.get(session, {})

    @uninterrupted
    def note_ends(self, *records: StreamEnds) -> None:
        """Write where segments end, for the next process that opens the store; the store is about to be closed."""
        with self.lock:
            for record in records:
                self._write([record], encode_checked([record]), durable=record is records[-1])

    def make_durable(self) -> None:
        """Write to the disk what might be forgotten in a crash, if there is anything."""
        with self.lock:
            if self.is_failed or self._owed or self._unsettled:
                self.commit()

    def catch_up(self) -> None:
        """Write what the disk has refused, before more happens that is not on record."""
        if self._owed:
            self.commit()

    def _write(
        self, records: list[Record], data: bytes, *, durable: bool, certain: bool = False
    ) -> PendingLogAppend | None:
        """Append the records as one, behind those that are owed; where the disk is full, they are not kept.

        ``data`` is the records encoded. Return when they are durable or, with ``certain``, when no full disk can keep
        them from being.
        """
        self._check()
        try:
            while self._owed:
                self._append(self._owed[0], encode_records(self._owed[0]))
                del self._owed[0]
            in_order = not certain or self._log.next_append(len(data)).in_order
            pending = self._append(records, data) if records else None
            in_doubt = certain and pending is not None and not (in_order and pending.is_certain)
            if self._unsettled and (durable or in_doubt or len(self._unsettled) > _UNSETTLED_MAX):
                self._unsettled[-1][0].result()
                self._unsettled = []
        except AppendTooLarge:
            raise  # nothing was appended
        except _REFUSED:
            self._find_lost()
            self._owed = [owed for owed in self._owed if owed is not records]
            raise
        except PenstockError as error:
            self._failed = error
            raise
        return pending

    def _append(self, records: list[Record], data: bytes) -> PendingLogAppend:
        pending = self._log.submit(data)
        self._grown += len(data)
        self._unsettled.append((pending, records))
        return pending

    def _find_lost(self) -> None:
        """Find out which records the log has dropped because it found no space to go on; they are owed again.

        Those behind the first one that was dropped are, too: they lay in the same plog, which is not part of the log.
        """
        unsettled, self._unsettled = self._unsettled, []
        try:
            kept = sum(1 for _ in takewhile(_is_kept, (pending for pending, _ in unsettled)))
        except PenstockError as error:
            self._failed = error
            raise
        self._owed = [*(records for _, records in unsettled[kept:]), *self._owed]

    def _check(self) -> None:
        """Refuse changes after a failure that leaves unknown what was kept: opening the store again finds out."""
        if self._failed is not None:
            raise self._failed.with_traceback(None)
        self.check_open()

    def _try_snapshot(self) -> None:
        """Write a snapshot if it is time; the records are kept, however this ends."""
        if self.is_failed or self._grown <= self._snapshot_at:
            return
        try:
            self._write_snapshot()
        except (*_REFUSED, AppendTooLarge, BadArgument) as error:
            with suppress(PenstockError):  # then the catalog has failed, and says so at the next change
                self._find_lost()
            self._snapshot_at = self._grown + _SNAPSHOT_EVERY_MIN
            _logger.warning("cannot write a snapshot of the catalog: %s", error)
        except PenstockError as error:
            self._failed = error

    def _write_snapshot(self) -> None:
        before, size = self._log.length, 0
        for data in snapshot_appends(self._state):
            self._log.append(data)
            size += len(data)
        self._grown, self._snapshot_at = size, _next_snapshot(size)
        self._log.truncate(self._log.plog_at(before))

    def close(self) -> None:
        """Take no more changes; those that might have been forgotten are durable then."""
        with self.lock:
            if not self._closed and self._failed is None:
                self.commit()
            self._closed = True


def _is_kept(pending: PendingLogAppend) -> bool:
    """Wait until an append is durable; False if the log has dropped it, because the disk is full."""
    try:
        pending.result()
    except _REFUSED:
        return False
    return True


def _next_snapshot(size: int) -> int:
    """Return how large the log may grow behind a snapshot of this size."""
    return max(_SNAPSHOT_EVERY_MIN, _SNAPSHOT_SHARE * size)
