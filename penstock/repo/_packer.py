"""The packer: takes items from front to back, checks each one, and packs them into blocks in a scratch file.

Whatever a stream gives is made a full text first, and compared with its sha1; a delta whose basis has not come yet is
held until it does. Texts are stored whole, beside the other versions of the same file, where compression finds what
they share: up to a gigabyte is sorted at a time. Inventories differ by a few lines of many, and are stored as deltas on
the inventory of their first parent; after some hundred deltas a whole one follows, which bounds how many have to be
read.

Nothing leaves the scratch file before the stream has ended, so an invalid item leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from penstock.errors import BadRecord, BundleCorrupt, ContentConflict, MissingBasis, NoSuchKey, RepositoryError
from penstock.model import shown
from penstock.repo._block import ALONE_SIZE, DEPTH_MAX, Item, encode_block, size_in_block
from penstock.repo._buffer import ItemBuffer, naming
from penstock.repo._graph import check_acyclic, is_own_ancestor
from penstock.repo._held import HeldDeltas
from penstock.repo._index import Index
from penstock.repo._inventory import check_paths
from penstock.repo._items import CHAIN_MAX, Items
from penstock.repo._keys import INVENTORIES, Key, check_key, check_parents, check_text_size
from penstock.repo._records import ABSENT, FULLTEXT, KNIT_DELTA
from penstock.repo._refs import REFS, decode_refs
from penstock.repo.kinds import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Self

    from penstock.repo._buffer import Waiting
    from penstock.repo._records import Factory, RecordStream

__all__ = ["Packer", "ScratchFile", "circle", "contradiction"]

_BUFFER_SIZE: Final = 1 << 30  # what is sorted at a time, so that versions of a file come together
_BUFFER_ITEMS: Final = 200_000  # each takes about half a kilobyte of memory
_BLOCK_SIZE: Final = 4 << 20
_BLOCK_ITEMS: Final = 2_000  # its table is read as a whole
_RECENT_SIZE_MAX: Final = 16 << 20
_BASIS_SIZE_MAX: Final = 1 << 20  # what a small block may be compressed against
_UNKNOWN_SHA1: Final = bytes(20)
_SHA1: Final = re.compile("[0-9a-f]{40}")


class _Held(msgspec.Struct):
    """A delta that waits for its basis."""

    key: Key
    parents: tuple[Key, ...]
    sha1: str | None
    kind: str
    data: bytes
    compressor_data: dict[str, Any] | None


class ScratchFile:
    """Blocks in a file that only this process knows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sizes: dict[int, int] = {}

    def append(self, block: bytes) -> int:
        """Write a block at the end, and return its address."""
        address = self._file.seek(0, 2)
        with naming(self._file):
            self._file.write(block)
        self._sizes[address] = len(block)
        return address

    def blocks(self) -> Iterator[bytes]:
        """Return all blocks, in their order."""
        for address in self._sizes:
            yield self.read_block(address, table_only=False)

    def read_block(self, address: int, *, table_only: bool) -> bytes:
        """Return a block."""
        del table_only  # it is at hand
        self._file.seek(address)
        return self._file.read(self._sizes[address])

    def pieces(self, address: int) -> Iterator[bytes]:
        """Return a block in one piece."""
        yield self.read_block(address, table_only=False)

    def damaged(self, address: int, reason: str) -> BundleCorrupt:
        """Return the error that says which block is damaged."""
        return BundleCorrupt("the scratch file", offset=address, reason=reason)


class Packer:
    """Packs one stream. ``below`` is what is stored already; items that it has are compared and skipped.

    Blocks and deltas may build on what is below, because both will be stored together. ``known_ghosts`` are the
    parents of items below that are not there.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        below: Items | None = None,
        known_ghosts: Collection[Key] = (),
    ) -> None:
        self.scratch = ScratchFile(file)
        self.index = Index()
        self._here = Items(self.scratch, self.index)
        self._below = below
        self._buffer = ItemBuffer()
        self._held = HeldDeltas[_Held]()
        self._chains: dict[Key, int] = {}
        self._recent: dict[Key, bytes] = {}  # full texts of the last deltas, on which the next ones build
        self._recent_size = 0
        self.added: list[Key] = []  # until it is finished
        self.added_count = 0
        self.existing = 0
        self.ghosts: list[Key] = []
        self._known_ghosts = frozenset(known_ghosts)
        self.absent: list[Key] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._buffer.close()

    def count_of(self, first: bytes) -> int:
        """Return how many items were added whose keys begin with this, until it is finished."""
        return sum(key[0] == first for key in self.added)

    def take(self, stream: RecordStream) -> None:
        """Add every item of a stream."""
        for record in stream.iter_contents():
            for factory in record.entries:
                self.add(record.key_prefix, factory)

    def add(self, prefix: Key, factory: Factory) -> None:
        """Add an item; an error if it is invalid, or if its key is taken by other content."""
        key = (*prefix, *factory.key)
        check_key(key)
        if factory.storage_kind == ABSENT:
            self.absent.append(key)
            return
        parents = tuple((*prefix, *parent) for parent in factory.parents)
        check_parents(key, parents)
        kind = factory.storage_kind
        data = factory.get_bytes_as(kind)
        if type(data) is not bytes:
            raise BadRecord(key, f"its bytes are {shown(data)}")
        waiting = [_Held(key, parents, factory.sha1, kind, data, factory.compressor_data)]
        while waiting:
            waiting += self._add(waiting.pop())

    @property
    def missing(self) -> list[Key]:
        """The texts that held deltas wait for, and that are not among them."""
        held = {delta.key for _, delta in self._held}
        return sorted({basis for basis, _ in self._held} - held)

    @property
    def held_count(self) -> int:
        """How many deltas wait for their basis."""
        return sum(1 for _ in self._held)

    def finish(self, *, keep_held: bool = False) -> None:
        """Pack what is left; with ``keep_held`` also deltas without their basis, as they are."""
        if keep_held:
            for _, delta in self._held:
                sha1 = bytes.fromhex(delta.sha1) if delta.sha1 else _UNKNOWN_SHA1
                self._store(Item(delta.key, delta.parents, sha1, delta.kind, delta.data, delta.compressor_data))
        self.check_graph()
        for known in (self.added, self._chains, self._recent):
            known.clear()
        self._flush()

    def check_graph(self) -> None:
        """Require that no item is its own ancestor, and note the parents that are nowhere.

        A circle through items that were stored before is closed by one that had been missing until now.
        """
        parents = {key: self._parents(key) for key in self.added}
        check_acyclic(parents)
        named = {parent for family in parents.values() for parent in family if parent not in parents}
        self.ghosts = sorted(parent for parent in named if self._items_with(parent) is None)
        if (error := circle(parents.keys() & self._known_ghosts, self._parents)) is not None:
            raise error

    def _add(self, given: _Held) -> list[_Held]:
        """Add one item whose basis may be missing, and return the ones that waited for it."""
        try:
            text = decode(
                given.kind,
                given.data,
                key=given.key,
                parents=given.parents,
                compressor_data=given.compressor_data,
                get_text=self._text,
            )
        except MissingBasis as error:
            self._hold(error.basis, given)
            return []
        check_text_size(given.key, text)
        sha1 = hashlib.sha1(text, usedforsecurity=False)
        if given.sha1 is not None and given.sha1 != sha1.hexdigest():
            raise BadRecord(given.key, f"its sha1 is {sha1.hexdigest()} instead of {shown(given.sha1)}")
        if self._is_known(given.key, given.parents, sha1.hexdigest()):
            self.existing += 1
        else:
            item = self._item(given, text, sha1.digest())
            if item.key[0] == INVENTORIES:
                check_paths(item.key[-1], item.kind, item.data)
            elif item.key[0] == REFS:
                decode_refs(item.key, text)
            if item.kind != FULLTEXT:
                self._remember(item.key, text)
            self._store(item)
        return self._held.release(given.key)

    def _hold(self, basis: Key, delta: _Held) -> None:
        if delta.sha1 is not None and not _SHA1.fullmatch(delta.sha1):
            raise BadRecord(delta.key, f"its sha1 is {shown(delta.sha1)}, and not 40 hexadecimal digits")
        self._held.hold(basis, delta, key=delta.key, size=size_in_block(delta.key, delta.parents, delta.data))

    def _is_known(self, key: Key, parents: tuple[Key, ...], sha1: str) -> bool:
        """Whether an item is stored already; an error if it is another one."""
        if (item := self._buffer.get(key)) is not None:
            known = item.sha1.hex(), item.parents
        elif (items := self._items_with(key)) is not None:
            known = items.sha1(key), items.parents(key)
        else:
            return False
        if (error := contradiction(key, known, (sha1, parents))) is not None:
            raise error
        return True

    def _item(self, given: _Held, text: bytes, sha1: bytes) -> Item:
        """Return an item in the form in which it takes little space."""
        key, parents = given.key, given.parents
        if (
            key[0] != INVENTORIES
            or not parents
            or key[-1].split() != [key[-1]]
            or (length := self._chain(parents[0])) is None
            or length >= CHAIN_MAX
        ):
            return Item(key, parents, sha1, FULLTEXT, text)
        self._chains[key] = length + 1
        if given.kind == KNIT_DELTA:
            return Item(key, parents, sha1, KNIT_DELTA, given.data, given.compressor_data)
        delta, compressor_data = encode(KNIT_DELTA, text, key=key, parents=parents, get_text=self._text)
        if len(delta) > len(text) // 2:
            del self._chains[key]
            return Item(key, parents, sha1, FULLTEXT, text)
        return Item(key, parents, sha1, KNIT_DELTA, delta, compressor_data)

    def _chain(self, basis: Key) -> int | None:
        """Return how many deltas lead to a basis; None if a delta cannot be stored on it."""
        if (length := self._chains.get(basis)) is not None:
            return length
        if basis in self._buffer or basis in self._here:
            return 0
        if self._below is not None and self._below.is_own(basis):
            return self._below.chain_length(basis)
        return None

    def _text(self, key: Key) -> bytes:
        """Return a text that came before, or that is stored; deltas that wait are resolved from the last one on."""
        deltas: list[Item] = []
        while (text := self._recent.get(key)) is None:
            item = self._buffer.get(key)
            if item is None:
                if (items := self._items_with(key)) is None:
                    raise NoSuchKey(key)
                text = items.text(key)
                break
            if item.kind == FULLTEXT:
                text = self._buffer.data(key)
                break
            deltas.append(item)
            key = item.parents[0]
        while deltas:
            item = deltas.pop()
            text = decode(
                item.kind,
                self._buffer.data(item.key),
                key=item.key,
                parents=item.parents,
                compressor_data=item.compressor_data,
                get_text={item.parents[0]: text}.__getitem__,
            )
            self._remember(item.key, text)
        return text

    def _remember(self, key: Key, text: bytes) -> None:
        self._recent_size += len(text) - len(self._recent.pop(key, b""))
        self._recent[key] = text
        while self._recent_size > _RECENT_SIZE_MAX:
            oldest = next(iter(self._recent))
            self._recent_size -= len(self._recent.pop(oldest))

    def _items_with(self, key: Key) -> Items | None:
        if key in self._here:
            return self._here
        return self._below if self._below is not None and key in self._below else None

    def _store(self, item: Item) -> None:
        self._buffer.add(item)
        self.added.append(item.key)
        self.added_count += 1
        if self._buffer.size > _BUFFER_SIZE or len(self._buffer) >= _BUFFER_ITEMS:
            self._flush()

    def _flush(self) -> None:
        """Pack what was collected, versions of one file side by side."""
        for waiting in _cut(sorted(self._buffer, key=lambda waiting: waiting.item.key[:-1])):
            together = [self._buffer.whole(item) for item in waiting]
            basis, depth = self._basis(together)
            block = encode_block(together, basis=basis, depth=depth)
            self.index.add([(self.scratch.append(block), [item.key for item in together])])
        self._buffer.clear()

    def _basis(self, items: Sequence[Item]) -> tuple[list[tuple[Key, bytes]], int]:
        """Return the texts against which a small block is compressed, those of its parents, and its depth."""
        size = sum(len(item.data) for item in items)
        if self._below is None or size > _BASIS_SIZE_MAX:
            return [], 0
        basis: list[tuple[Key, bytes]] = []
        left, depth = _BASIS_SIZE_MAX, 0
        for parent in dict.fromkeys(item.parents[0] for item in items if item.parents):
            if not self._below.is_own(parent) or (below := self._below.depth(parent)) >= DEPTH_MAX:
                continue
            text = self._below.text(parent)
            if len(text) <= left:
                basis.append((parent, text))
                left, depth = left - len(text), max(depth, below + 1)
        return basis, depth

    def _parents(self, key: Key) -> tuple[Key, ...]:
        if (item := self._buffer.get(key)) is not None:
            return item.parents
        items = self._items_with(key)
        return items.parents(key) if items is not None else ()


_Known = tuple[str, tuple[Key, ...]]
"""The sha1 of an item, and its parents."""


def contradiction(key: Key, stored: _Known, given: _Known) -> RepositoryError | None:
    """Return why two items with one key cannot both be right; None if they are the same."""
    if stored[0] != given[0]:
        return ContentConflict(key, stored=stored[0], given=given[0])
    if stored[1] != given[1]:
        return BadRecord(key, "it has other parents than the same item that is stored already")
    return None


def circle(new: Iterable[Key], get_parents: Callable[[Key], Iterable[Key]]) -> BadRecord | None:
    """Return the error of an item that had been missing until now, and is its own ancestor; None if none is."""
    for key in sorted(new):
        if is_own_ancestor(key, get_parents):
            return BadRecord(key, "it is its own ancestor, through items that are stored already")
    return None


def _cut(items: Iterable[Waiting]) -> Iterator[list[Waiting]]:
    """Cut items into blocks: things of one kind, up to some megabytes, large ones alone."""
    together: list[Waiting] = []
    size = 0
    for waiting in items:
        is_large = waiting.size > ALONE_SIZE
        is_other = bool(together) and waiting.item.key[0] != together[0].item.key[0]
        is_full = size + waiting.size > _BLOCK_SIZE or len(together) == _BLOCK_ITEMS
        if together and (is_large or is_other or is_full):
            yield together
            together, size = [], 0
        together.append(waiting)
        size += waiting.size
        if is_large:
            yield together
            together, size = [], 0
    if together:
        yield together
