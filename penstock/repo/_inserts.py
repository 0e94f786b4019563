"""Inserts as they are found in the stream of a repository.

The blocks of an insert are read one after the other, as often as they are needed: a few kilobytes of them can have
hundreds of megabytes of keys, and whoever may write to the stream decides how many there are. What is in memory of an
insert are a few numbers for each item.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from penstock.repo._index import Index
from penstock.repo._packer import circle, contradiction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from penstock.errors import BadRecord, RepositoryError
    from penstock.repo._block import ItemBlock
    from penstock.repo._items import Items
    from penstock.repo._keys import Key

__all__ = ["InsertedBlocks", "closed_circle", "contradictions"]


class InsertedBlocks:
    """The blocks of an insert; those that could not be decoded are counted."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._addresses = array("q")  # -1 for one that is damaged

    def add(self, address: int, *, is_damaged: bool) -> None:
        """Add a block."""
        self._addresses.append(-1 if is_damaged else address)

    def last(self, count: int) -> InsertedBlocks:
        """Return the last blocks, or all if there are fewer."""
        found = InsertedBlocks(self._items)
        found._addresses = self._addresses[max(0, len(self) - count) :]
        return found

    @property
    def are_whole(self) -> bool:
        """Whether none is damaged."""
        return -1 not in self._addresses

    def by_address(self) -> Iterator[tuple[int, Iterable[Key]]]:
        """Return the address of each block, and the keys of its items."""
        return ((address, self._items.table(address).keys) for address in self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[ItemBlock]:
        return map(self._items.table, self._addresses)


def contradictions(items: Items, blocks: InsertedBlocks) -> Iterator[RepositoryError]:
    """Return what is stored under a key of an insert already, and is something else."""
    for block in blocks:
        for number, key in enumerate(block.keys):
            if items.is_own(key):
                new = block.sha1(number).hex(), block.parents(number)
                error = contradiction(key, (items.sha1(key), items.parents(key)), new)
                if error is not None:
                    yield error


def closed_circle(items: Items, blocks: InsertedBlocks, ghosts: AbstractSet[Key]) -> BadRecord | None:
    """Return why an insert makes an item its own ancestor, through items that are stored already; None if it does not.

    Only an item that had been missing until now can do that.
    """
    closing = {key for block in blocks for key in block.keys if key in ghosts} if ghosts else set()
    if not closing:
        return None
    index = Index()
    index.add(blocks.by_address())

    def parents_of(key: Key) -> tuple[Key, ...]:
        place = next((place for place in index.find(key) if items.key_at(place) == key), None)
        if place is not None:
            return items.parents_at(place)
        return items.parents(key) if items.is_own(key) else ()

    return circle(closing, parents_of)
