"""Items by their keys, in the blocks of a repository or a bundle.

Blocks are read when an item in them is needed, and the last ones stay in memory, within a budget. A delta is resolved
step by step along its parents, without recursion, however long the chain is. What is not here is looked up in the
contents that these are stacked on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from penstock.errors import BadRecord, MissingBasis, NoSuchKey
from penstock.repo._block import BlockDamaged, ItemBlock
from penstock.repo._keys import REVISIONS, Key, check_key, check_text_size
from penstock.repo._records import FULLTEXT, KNIT_DELTA, StoredFactory
from penstock.repo.kinds import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.errors import CorruptData
    from penstock.repo._index import Index, Place
    from penstock.repo._records import Factory

__all__ = ["CHAIN_MAX", "BlockSource", "Items"]

_T = TypeVar("_T")
_BLOCKS_SIZE_MAX: Final = 64 << 20
_BLOCKS_MAX: Final = 512
_TEXTS_SIZE_MAX: Final = 32 << 20  # full texts of deltas, such as inventories: the next ones build on them
CHAIN_MAX: Final = 200


class BlockSource(Protocol):
    """Where blocks are stored."""

    def read_block(self, address: int, *, table_only: bool) -> bytes:
        """Return the block at an address; with ``table_only``, its head and table suffice."""

    def pieces(self, address: int) -> Iterator[bytes]:
        """Return a block piece by piece, its head in the first one."""

    def damaged(self, address: int, reason: str) -> CorruptData:
        """Return the error that says which block is damaged."""


class Items:
    """Items by their keys, and the graph of their parents. Threads may share it."""

    def __init__(self, source: BlockSource, index: Index, *, stacked_on: Items | None = None) -> None:
        self._source, self._index, self._below = source, index, stacked_on
        self._blocks: OrderedDict[int, ItemBlock] = OrderedDict()
        self._texts: OrderedDict[Key, bytes] = OrderedDict()
        self._texts_size = 0
        self._cache_lock = threading.Lock()

    def __contains__(self, key: Key) -> bool:
        check_key(key)
        return self._find(key) is not None or (self._below is not None and key in self._below)

    def text(self, key: Key) -> bytes:
        """Return the full text of an item; ``NoSuchKey`` if there is none."""
        check_key(key)
        place = self._find(key)
        if place is None:
            if self._below is None:
                raise NoSuchKey(key)
            return self._below.text(key)
        if self._block(place[0], table_only=True).kind(place[1]) == FULLTEXT:
            return bytes(self._data(place))
        return self._text(key)

    def parents(self, key: Key) -> tuple[Key, ...]:
        """Return the parents of an item, which need not be here themselves."""
        check_key(key)
        return self._look_up(key, lambda block, number: block.parents(number), lambda below: below.parents(key))

    def sha1(self, key: Key) -> str:
        """Return the sha1 of the full text of an item."""
        check_key(key)
        return self._look_up(key, lambda block, number: block.sha1(number).hex(), lambda below: below.sha1(key))

    @property
    def layers(self) -> list[Items]:
        """These contents, and all that they are stacked on, from top to bottom."""
        return [self, *(self._below.layers if self._below is not None else ())]

    def revision_parents(self, revision: bytes) -> list[bytes] | None:
        """Return the ids of a revision's parents; None if it is not here."""
        try:
            return [parent[-1] for parent in self.parents((REVISIONS, revision))]
        except NoSuchKey:
            return None

    def revision_place(self, revision: bytes) -> tuple[int, int, int] | None:
        """Return where a revision is, later ones behind earlier ones; None if it is not here."""
        for depth, layer in enumerate(self.layers):
            if (place := layer._find((REVISIONS, revision))) is not None:
                return -depth, *place
        return None

    def places(self, revisions: Iterable[bytes] | None = None) -> Iterator[Place]:
        """Return where the items of some revisions are, or all items, each once, block by block."""
        if revisions is not None:
            wanted = frozenset(revisions)
            for place in self._index.of_revisions(wanted):
                key = self.key_at(place)
                if key[-1] in wanted and self._find(key) == place:
                    yield place
            return
        yield from self.places_in(self._index.addresses())

    def places_in(self, addresses: Iterable[int]) -> Iterator[Place]:
        """Return where the items of some blocks are, each once."""
        doubtful = self._index.doubtful()
        for address in addresses:
            for number, key in enumerate(self._block(address, table_only=True).keys):
                if (address, number) not in doubtful or self._find(key) == (address, number):
                    yield address, number

    def table(self, address: int) -> ItemBlock:
        """Return the block at an address, or only its head and table."""
        return self._block(address, table_only=True)

    def key_at(self, place: Place) -> Key:
        """Return the key of the item at a place."""
        return self._block(place[0], table_only=True).keys[place[1]]

    def parents_at(self, place: Place) -> tuple[Key, ...]:
        """Return the parents of the item at a place."""
        return self._block(place[0], table_only=True).parents(place[1])

    def factory(self, place: Place, *, prefix: int, as_fulltext: bool = False) -> Factory:
        """Return the item at a place, its key and its parents without their first ``prefix`` elements."""
        address, number = place
        block = self._block(address, table_only=True)
        key, kind = block.keys[number], block.kind(number)
        whole = as_fulltext or kind == FULLTEXT
        return StoredFactory(
            key[prefix:],
            tuple(parent[prefix:] for parent in block.parents(number)),
            storage_kind=FULLTEXT if whole else kind,
            sha1=block.sha1(number).hex(),
            compressor_data=None if whole else block.compressor_data(number),
            read=(lambda: self._text(key)) if whole and kind != FULLTEXT else (lambda: bytes(self._data(place))),
            read_text=lambda: self._text(key),
            read_pieces=(lambda: self._source.pieces(address)) if block.is_alone and kind == FULLTEXT else None,
        )

    def stored(self, key: Key) -> tuple[str, bytes]:
        """Return the storage kind of an item, and its bytes as they are stored."""
        place = self._find(key)
        if place is not None:
            return self._block(place[0], table_only=True).kind(place[1]), bytes(self._data(place))
        if self._below is None:
            raise NoSuchKey(key)
        return self._below.stored(key)

    def is_own(self, key: Key) -> bool:
        """Whether an item is stored here, and not only in the contents below."""
        return self._find(key) is not None

    def depth(self, key: Key) -> int:
        """Return how many blocks have to be decoded before the one that has this item."""
        return self._look_up(key, lambda block, _: block.depth, lambda _: 0)

    def chain_length(self, key: Key) -> int:
        """Return how many deltas lead to this item, up to the limit, counted within these contents."""
        length = 0
        while length < CHAIN_MAX and (place := self._find(key)) is not None:
            block = self._block(place[0], table_only=True)
            if block.kind(place[1]) != KNIT_DELTA:
                break
            key, length = block.parents(place[1])[0], length + 1
        return length

    def _find(self, key: Key) -> Place | None:
        for place in self._index.find(key):
            if self.key_at(place) == key:
                return place
        return None

    def _look_up(self, key: Key, here: Callable[[ItemBlock, int], _T], below: Callable[[Items], _T]) -> _T:
        if (place := self._find(key)) is not None:
            return here(self._block(place[0], table_only=True), place[1])
        if self._below is None:
            raise NoSuchKey(key)
        return below(self._below)

    def _text(self, key: Key) -> bytes:
        """Return the full text of an item that is here, resolving the deltas that lead to it from the last one on."""
        needed, texts = [key], dict[Key, bytes]()
        while needed:
            current = needed[-1]
            try:
                texts[current] = self._decoded(current, texts)
            except MissingBasis as error:
                if error.basis in needed:
                    raise BadRecord(current, f"its delta builds on itself, through {len(needed)} others") from None
                if self._find(error.basis) is not None:
                    needed.append(error.basis)
                elif self._below is not None and error.basis in self._below:
                    texts[error.basis] = self._below.text(error.basis)
                else:
                    raise
            else:
                needed.pop()
        return texts[key]

    def _decoded(self, key: Key, texts: dict[Key, bytes]) -> bytes:
        """Decode an item whose bases are in ``texts`` or in memory; they leave ``texts`` when they were used."""
        place = self._find(key)
        assert place is not None
        block = self._block(place[0], table_only=True)
        kind, data = block.kind(place[1]), self._data(place)
        if kind == FULLTEXT:
            return bytes(data)
        if (known := self._cached_text(key)) is not None:
            return known
        used: list[Key] = []

        def basis_text(basis: Key) -> bytes:
            used.append(basis)
            text = texts.get(basis)
            return text if text is not None else self._text_at_hand(basis)

        text = decode(
            kind,
            data,
            key=key,
            parents=block.parents(place[1]),
            compressor_data=block.compressor_data(place[1]),
            get_text=basis_text,
        )
        check_text_size(key, text)
        for basis in used:
            texts.pop(basis, None)
        self._cache_text(key, text)
        return text

    def _text_at_hand(self, key: Key) -> bytes:
        """Return a text that needs no other; ``KeyError`` if it does."""
        if (text := self._cached_text(key)) is not None:
            return text
        place = self._find(key)
        if place is None or self._block(place[0], table_only=True).kind(place[1]) != FULLTEXT:
            raise KeyError(key)
        return bytes(self._data(place))

    def _data(self, place: Place) -> memoryview:
        """Return the bytes of an item as they are stored."""
        address, number = place
        block = self._block(address, table_only=False)

        def basis_text(key: Key) -> bytes:
            found = self._find(key)
            if found is None:
                raise MissingBasis(block.keys[number], key)
            if self._block(found[0], table_only=True).depth >= block.depth:
                raise BlockDamaged("it builds on a block that builds on it")
            return self._text(key)

        was_unpacked = block.is_unpacked
        try:
            data = block.data(number, basis_text)
        except BlockDamaged as error:
            raise self._source.damaged(address, str(error)) from None
        if not was_unpacked:
            self._cache_block(address, block)  # it takes more memory now
        return data

    def _block(self, address: int, *, table_only: bool) -> ItemBlock:
        with self._cache_lock:
            block = self._blocks.get(address)
            if block is not None and (table_only or block.is_whole):
                self._blocks.move_to_end(address)
                return block
        try:
            block = ItemBlock(self._source.read_block(address, table_only=table_only))
        except BlockDamaged as error:
            raise self._source.damaged(address, str(error)) from None
        if not (table_only or block.is_whole):
            raise self._source.damaged(address, "it is cut off")
        self._cache_block(address, block)
        return block

    def _cache_block(self, address: int, block: ItemBlock) -> None:
        with self._cache_lock:
            self._blocks[address] = block
            self._blocks.move_to_end(address)
            size = sum(cached.memory_size for cached in self._blocks.values())
            while size > _BLOCKS_SIZE_MAX or len(self._blocks) > _BLOCKS_MAX:
                _, dropped = self._blocks.popitem(last=False)
                size -= dropped.memory_size

    def _cached_text(self, key: Key) -> bytes | None:
        with self._cache_lock:
            return self._texts.get(key)

    def _cache_text(self, key: Key, text: bytes) -> None:
        with self._cache_lock:
            self._texts_size += len(text) - len(self._texts.pop(key, b""))
            self._texts[key] = text
            while self._texts_size > _TEXTS_SIZE_MAX and len(self._texts) > 1:
                _, dropped = self._texts.popitem(last=False)
                self._texts_size -= len(dropped)
