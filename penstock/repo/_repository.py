"""The repository: versioned content on one Penstock stream.

The stream has one segment, to which inserts are added and from which nothing is removed. To open it again, the latest
index is read and what was inserted since, not the history. The index is written whenever enough was inserted; a
consumer of the stream, which is never truncated, remembers where it is.

Any event can be added by those who may write to the stream. One that no repository writes is passed over, and so is an
insert with anything invalid in its tables; a check names them, and the rest can be read as before.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from penstock import forks
from penstock.errors import (
    BadArgument,
    ContentConflict,
    CorruptData,
    DataTruncated,
    NoSuchEvent,
    NoSuchStream,
    NoSuchTransaction,
    NotARepository,
    NotPermitted,
    RepositoryError,
    TransactionEnded,
)
from penstock.model import Fixed, StreamConfig, StreamCut, check_kind, check_method, check_whole
from penstock.repo._block import BLOCK_MAGIC, BlockDamaged, checked_block
from penstock.repo._contents import RepositoryContents
from penstock.repo._events import (
    INDEX_MAGIC,
    INSERT_MAGIC,
    INSERT_SIZE_MAX,
    IndexPart,
    InsertRecord,
    decode_insert_record,
    encode_index_event,
    encode_insert_record,
    invalidity,
)
from penstock.repo._index import ROWS_MAX, Index
from penstock.repo._index_events import load_index
from penstock.repo._inserts import InsertedBlocks, closed_circle, contradictions
from penstock.repo._keys import REVISIONS
from penstock.repo._packer import Packer
from penstock.repo._records import UNORDERED, ContentFactory, Record
from penstock.repo._refs import REFS, Ref, encode_refs, last_refs_key, next_refs_key
from penstock.repo._results import InsertResult, RepositoryPart
from penstock.repo._search import Everything, search_request
from penstock.repo._serialised import RepositoryServer, records_of
from penstock.repo._stream import RepositoryStream, StreamCheck, check_stream_arguments, stream_of
from penstock.repo._stream_blocks import EVENT_SIZE, SEGMENT, StreamBlocks, write_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from penstock.errors import PenstockError
    from penstock.repo._keys import Key
    from penstock.repo._records import Factory, RecordStream
    from penstock.repo._search import Search
    from penstock.repo._stream import Ordering
    from penstock.store import Store

_T = TypeVar("_T")

__all__ = ["REPOSITORY_TAG", "Repository"]

REPOSITORY_TAG: Final = "penstock-repository"
_CONSUMER: Final = "penstock.repository"
_INDEX_ITEMS: Final = 1_000  # an index is written when this many items, or this many inserts, are in none
_INDEX_INSERTS: Final = 64
_ATTEMPTS: Final = 3
_OWN: Final = frozenset(magic[:3] for magic in (BLOCK_MAGIC, INSERT_MAGIC, INDEX_MAGIC))  # others are passed over
_REQUEST_SIZE_MAX: Final = 8 << 10  # a longer list of revisions is searched here, block by block


class Repository(RepositoryContents):
    """Versioned content on a stream. Threads and processes may share it; :meth:`refresh` shows what others inserted."""

    def __init__(
        self, store: Store, stream: str, *, stacked_on: RepositoryContents | None = None, items_max: int = ROWS_MAX
    ) -> None:
        self._blocks_of = StreamBlocks(store, stream)
        super().__init__(self._blocks_of, Index(), stacked_on=stacked_on)
        self._store, self.stream = store, stream
        self._lock = threading.RLock()
        self._uid = store.stream(stream).uid
        self._items_max = items_max
        self._next = 0  # all events before this offset are in the index
        self._last_insert = -1
        self._ghosts: set[Key] = set()
        self._under_way: dict[bytes, list[RepositoryError | None]] = {}  # inserts by id: why they are void, once read
        self._parts: list[IndexPart] = []
        self._indexed_to = self._indexed_count = 0
        self._inserts_since = 0
        self._writes_index = True
        self._passed_over: list[PenstockError] | None = None  # a check collects them
        self._foreign_events = 0
        forks.guard(self)

    @classmethod
    def open(cls, store: Store, stream: str, *, create: bool = False, items_max: int = ROWS_MAX) -> Self:
        """Open a repository; with ``create``, make the stream if it is not there.

        One with more than ``items_max`` items is refused: its index takes 32 bytes of memory for each.
        """
        check_kind("create", create, bool)
        try:
            tags = store.stream(stream).config.tags
        except NoSuchStream:
            if not create:
                raise
            config = StreamConfig(scaling=Fixed(1), tags=(REPOSITORY_TAG,))
            store.create_stream(stream, config=config, exist_ok=True)  # which only administrators may
            tags = store.stream(stream).config.tags
        if REPOSITORY_TAG not in tags:
            raise NotARepository(stream)
        repository = cls(store, stream, items_max=items_max)
        repository._load_index()
        repository.refresh()
        return repository

    def stacked_on(self, below: RepositoryContents) -> Repository:
        """Return this repository on top of another one or of a bundle, which is asked for what is not here."""
        check_kind("below", below, RepositoryContents)
        stacked = Repository(self._store, self.stream, stacked_on=below)
        stacked._load_index()
        stacked.refresh()
        return stacked

    def get_repository_stream(
        self,
        search: Search,
        ordering: Ordering = UNORDERED,
        complete_inventory: bool = False,
    ) -> RepositoryStream:
        """Return the stream of a search; of a store on a server, the server searches and sends it, in one round trip.

        It is as in :meth:`RepositoryContents.get_repository_stream`.
        """
        if isinstance(self._store, RepositoryServer) and len(self.layers) == 1:
            name, ids, known = search_request(search)
            if sum(map(len, ids)) + sum(map(len, known)) <= _REQUEST_SIZE_MAX:
                check_stream_arguments(ordering, complete_inventory)
                blocks = self._store.repository_blocks(
                    self.stream, name, ids=ids, known=known, ordering=ordering, complete_inventory=complete_inventory
                )
                return RepositoryStream(records_of(blocks))
        self.refresh()
        return super().get_repository_stream(search, ordering, complete_inventory)

    def parts(self, revisions: Iterable[bytes] | None = None, *, count: int = 8) -> list[RepositoryPart]:
        """Return about ``count`` parts for parallel readers: blocks that have items of some revisions, or all blocks.

        This reads the index only. A part can be pickled; :meth:`items_in` reads it, in any process.
        """
        check_whole("count", count, least=1)
        self.refresh()
        addresses = self._index.addresses(revisions)
        size = -(-len(addresses) // count) or 1
        return [RepositoryPart(tuple(addresses[at : at + size]), self._uid) for at in range(0, len(addresses), size)]

    def items_in(self, part: RepositoryPart) -> Iterator[tuple[Key, Factory]]:
        """Return the items in a part, each with its whole key, also as that of the factory.

        Their bytes are decoded when they are asked for.
        """
        check_kind("part", part, RepositoryPart)
        if part.stream_uid != self._uid:
            raise self._created_anew()
        for place in self.places_in(part.addresses):
            yield self.key_at(place), self.factory(place, prefix=0)

    def ghosts(self) -> list[bytes]:
        """Return the revisions that are named as parents and are not here, as of a shallow clone or of changes only."""
        with self._lock:
            return sorted(key[-1] for key in self._ghosts if key[0] == REVISIONS)

    def refresh(self) -> None:
        """See what was inserted since, by this process or another."""
        with self._lock:
            self._replay()

    def check(self) -> StreamCheck:
        """Read every event, reconstruct every item, and compare it with its sha1, and the index with what is stored."""
        self.refresh()
        replayed = Repository(self._store, self.stream, stacked_on=self.below)
        errors = replayed._passed_over = []
        try:
            opened = Repository.open(self._store, self.stream)
            replayed.refresh()
            if not np.array_equal(opened._index.sorted().columns, replayed._index.between(0, opened._next).columns):
                reason = f"unregister the consumer {_CONSUMER} of the stream, so that the index is made anew"
                errors.append(RepositoryError(f"the index of {self.stream} does not list what is stored: {reason}"))
        except CorruptData as error:
            errors.append(error)
        found = stream_of(replayed, Everything(), UNORDERED, complete_inventory=False).check()
        return replace(found, errors=(*errors, *found.errors), foreign_events=replayed._foreign_events)

    def insert_stream(self, stream: RecordStream) -> InsertResult:
        """Insert all items of a stream at once, or nothing.

        The stream is read once, from front to back. Items that are stored already are skipped. A delta whose basis
        comes later waits for it; if it never comes, nothing is inserted, and the result names what is missing. An
        invalid item is a ``BadRecord``, and one whose key is taken by other content a ``ContentConflict``.
        """
        check_method("stream", stream, "iter_contents")
        with self._lock:
            self._replay()
            base, ghosts = self._next, frozenset(self._ghosts)
        with tempfile.TemporaryFile() as file, Packer(file, below=self, known_ghosts=ghosts) as packer:
            packer.take(stream)
            if missing := tuple(sorted({*packer.missing, *packer.absent})):
                return InsertResult(0, packer.existing, missing)
            packer.finish()
            if packer.added_count:
                self._append(packer, base)
        return InsertResult(packer.added_count, packer.existing)

    def set_refs(self, refs: Mapping[bytes, Ref], *, tags: Mapping[Key, bytes] | None = None) -> None:
        """Store which revisions branches and tags name, in place of the names so far; ``tags`` are annotated ones."""
        for ref in refs.values():
            check_kind("ref", ref, Ref)
        self.change_refs(lambda: refs, tags=tags)

    def change_refs(
        self, change: Callable[[], Mapping[bytes, Ref]], *, tags: Mapping[Key, bytes] | None = None
    ) -> None:
        """Store the names that ``change`` returns; it is called again if somebody else changes them first."""
        own = self if self.below is None else Repository.open(self._store, self.stream)  # whose versions are its own
        while True:
            self.refresh()
            own.refresh()
            last = last_refs_key(own)
            text = encode_refs(change())
            if last is not None and own.text(last) == text:
                return
            factories = [ContentFactory(key, (), tag) for key, tag in (tags or {}).items()]
            factories.append(ContentFactory(next_refs_key(last), () if last is None else (last,), text))
            try:
                own.insert_stream(RepositoryStream(iter([Record((), iter(factories))])))
            except ContentConflict as error:
                if error.key[0] != REFS:
                    raise
            else:
                self.refresh()
                return

    def _append(self, packer: Packer, base: int) -> None:
        """Add what was packed to the stream, in one transaction.

        A transaction is lost if the process that owned the store ends, or if this one was suspended for a while. The
        stream tells whether it was committed before.
        """
        record_id = secrets.token_bytes(16)
        outcome = self._under_way[record_id] = []
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._commit(packer, record_id, base)
                except (NoSuchTransaction, TransactionEnded):
                    if attempt == _ATTEMPTS:
                        raise
                self.refresh()  # another thread may have done so
                if outcome:
                    break
        finally:
            del self._under_way[record_id]
        if error := (outcome or [RepositoryError(f"the insert into {self.stream} is invalid, and was not added")])[0]:
            raise error
        with self._lock:
            added = len(self._index) - self._indexed_count
            is_due = added >= _INDEX_ITEMS or self._inserts_since >= _INDEX_INSERTS
            if is_due and self._writes_index:
                self._write_index()

    def _commit(self, packer: Packer, record_id: bytes, base: int) -> None:
        with self._store.transactional_writer(self.stream) as writer, writer.begin() as transaction:
            count = 0
            for block in packer.scratch.blocks():
                write_block(transaction, block)
                count += 1
            record = encode_insert_record(InsertRecord(record_id, base, count, packer.added_count, packer.ghosts))
            if len(record) > INSERT_SIZE_MAX:
                parents = f"{len(packer.ghosts):,} parents that are nowhere"
                raise RepositoryError(f"the stream names {parents}: insert it in parts")
            write_block(transaction, record)

    def _replay(self) -> None:
        """Read what was inserted since, and note which of the inserts under way are void."""
        if self._store.stream(self.stream).uid != self._uid:
            raise self._created_anew()
        end = self._store.tail(self.stream).offsets[SEGMENT]
        blocks = InsertedBlocks(self)  # since the last insert
        for offset, event in self._events(self._next, end):
            if not len(blocks):
                self._next = offset  # where to go on, should this fail
            magic = event[:4]
            if magic == BLOCK_MAGIC:
                blocks.add(offset, is_damaged=not self._is_block(offset, event))
            elif magic == INSERT_MAGIC:
                if (record := self._decoded_event(offset, event, decode_insert_record)) is not None:
                    self._foreign_events += max(0, len(blocks) - record.blocks)
                    self._replay_insert(offset, record, blocks.last(record.blocks))
                self._next = offset
                blocks = InsertedBlocks(self)
            elif magic[:3] not in _OWN:
                self._foreign_events += 1
            elif magic != INDEX_MAGIC:
                self._pass_over(offset, "it is in a format that this version does not know")
        self._foreign_events += len(blocks)
        self._next = end

    def _created_anew(self) -> RepositoryError:
        return RepositoryError(f"repository {self.stream} was deleted and created anew: open it again")

    def _replay_insert(self, offset: int, record: InsertRecord, blocks: InsertedBlocks) -> None:
        """Add an insert to the index, if it is valid and contradicts no other."""
        reason = invalidity(record, blocks, offset) if blocks.are_whole else "its blocks are not there"
        if reason is not None:
            self._pass_over(offset, reason)
            return
        if len(self._index) + record.items > self._items_max:
            raise RepositoryError(f"{self.stream} has more than {self._items_max:,} items, the most that are read here")
        contradiction = self._contradiction(record, blocks)
        if contradiction is None:
            self._index.add(blocks.by_address())
            if self._ghosts:
                for _, keys in blocks.by_address():
                    self._ghosts.difference_update(keys)
            self._ghosts.update(key for key in record.ghosts if not self.is_own(key))
        if record.id in self._under_way:
            self._under_way[record.id].append(contradiction)
        self._last_insert = offset
        self._inserts_since += 1

    def _contradiction(self, record: InsertRecord, blocks: InsertedBlocks) -> RepositoryError | None:
        """Return why an insert is void; None if it is not.

        Its items were compared with all that was stored before its base, so they are compared again only if there was
        another insert since. If the base is a lie, what was stored first counts nevertheless, and a check names the
        rest. A circle of parents would do harm, and is looked for always.
        """
        is_compared = record.base > self._last_insert
        closed = closed_circle(self, blocks, self._ghosts)
        if is_compared and self._passed_over is not None:
            self._passed_over += [*contradictions(self, blocks), *([closed] if closed is not None else [])]
        return closed if is_compared else next(contradictions(self, blocks), closed)

    def _is_block(self, offset: int, event: bytes) -> bool:
        block = self._decoded_event(offset, event, checked_block)
        if block is not None:
            self._cache_block(offset, block)  # it is looked at again when the insert ends
        return block is not None

    def _decoded_event(self, offset: int, event: bytes, decode: Callable[[bytes], _T]) -> _T | None:
        """Return what is in an event; None if it is damaged."""
        try:
            return decode(event)
        except (BlockDamaged, ValueError) as error:
            self._pass_over(offset, str(error))
            return None

    def _pass_over(self, offset: int, reason: str) -> None:
        if self._passed_over is not None:
            place = f"the event at offset {offset} of stream {self.stream}"
            self._passed_over.append(RepositoryError(f"{place} is invalid, and is passed over: {reason}"))

    def _events(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Return the events between two offsets, of large ones as much as tells what they are."""
        if start == end:
            return
        cuts = [StreamCut.of(self.stream, {SEGMENT: offset}) for offset in (start, end)]
        for batch in self._store.read(self.stream, *cuts, max_event_size=EVENT_SIZE):
            for offset, event in zip(batch["offset"].to_pylist(), batch["event"].to_pylist(), strict=True):
                yield offset, event if event is not None else self._blocks_of.read_block(offset, table_only=True)

    def _load_index(self) -> None:
        """Read the latest index. Without one, or if it is damaged, the whole history is read once."""
        cut = self._store.consumers(self.stream).get(_CONSUMER)
        address = cut.offsets.get(SEGMENT) if cut is not None else None
        if address is None:
            return
        with contextlib.suppress(NoSuchEvent, DataTruncated, BadArgument, ValueError):
            head, self._parts, self._index = load_index(self._store, self.stream, address, rows_max=self._items_max)
            self._next = self._indexed_to = head.end
            self._indexed_count = len(self._index)
            self._last_insert, self._ghosts = head.last_insert, set(head.ghosts)

    def _write_index(self) -> None:
        """Write what is in no index event yet, together with earlier events that list no more items than it does.

        So each item is written again only when the index has about doubled, and few events make up the index.
        """
        if not self._may_register():
            return
        start, rows = self._indexed_to, len(self._index) - self._indexed_count
        parts = list(self._parts)
        while parts and parts[-1].rows <= 2 * rows:
            part = parts.pop()
            start, rows = part.start, rows + part.rows
        self._index = self._index.sorted()
        event = encode_index_event(
            self._index.between(start, self._next),
            start=start,
            end=self._next,
            last_insert=self._last_insert,
            ghosts=sorted(self._ghosts),
            earlier=parts,
        )
        with self._store.writer(self.stream) as writer, writer.begin_write_event() as file:
            file.write(event)
        self._parts = [*parts, IndexPart(file.pointer.offset, start, rows)]
        self._indexed_to, self._indexed_count, self._inserts_since = self._next, len(self._index), 0
        self._store.register_consumer(self.stream, _CONSUMER, StreamCut.of(self.stream, {SEGMENT: file.pointer.offset}))

    def _may_register(self) -> bool:
        """Whether this user may say where the index is; otherwise none is written, because it would not be found."""
        known = self._store.consumers(self.stream).get(_CONSUMER)
        try:
            self._store.register_consumer(
                self.stream, _CONSUMER, known or StreamCut.of(self.stream, {SEGMENT: self._next})
            )
        except NotPermitted:
            self._writes_index = False
        return self._writes_index
