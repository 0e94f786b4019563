"""The topological order of the items of a stream: parents before their children, file by file.

Texts come first, then inventories, revisions and signatures, because what names others comes behind them. Files come in
the order in which they are stored. A few numbers of each item are in memory; its key and its parents are read again
when the turn of its file has come.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.repo._graph import ParentRows
from penstock.repo._keys import INVENTORIES, REVISIONS, SIGNATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.repo._index import Place
    from penstock.repo._items import Items

__all__ = ["Located", "parents_first"]

Located = tuple["Items", "Place"]
_BEHIND_TEXTS: Final = {INVENTORIES: 1, REVISIONS: 2, SIGNATURES: 3}


def parents_first(located: Iterable[Located]) -> Iterator[Located]:
    """Return items in topological order."""
    layers: list[Items] = []
    ranks, groups, layer_numbers, addresses, numbers = (array(kind) for kind in "BqHQQ")
    for layer, (address, number) in located:
        if not layers or layers[-1] is not layer:
            layers.append(layer)
        key = layer.key_at((address, number))
        rank = _BEHIND_TEXTS.get(key[0], 0)
        ranks.append(rank)
        groups.append(0 if rank else hash(key[:-1]))
        layer_numbers.append(len(layers) - 1)
        addresses.append(address)
        numbers.append(number)

    def item_at(row: int) -> Located:
        return layers[layer_numbers[row]], (addresses[row], numbers[row])

    for rows in _grouped(np.frombuffer(ranks, np.uint8), np.frombuffer(groups, np.int64)):
        for row in _ordered(rows, item_at):
            yield item_at(row)


def _grouped(ranks: NDArray[np.uint8], groups: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Return the rows of each group: groups in the order of their ranks, then in that of their first rows."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    order = np.lexsort((first[inverse], ranks))
    is_new = (np.diff(groups[order]) != 0) | (np.diff(ranks[order]) != 0)
    start = 0
    for end in (*(np.flatnonzero(is_new) + 1), len(order)):
        yield order[start:end]
        start = end


def _ordered(rows: NDArray[np.int64], item_at: Callable[[int], Located]) -> Iterator[int]:
    """Return the rows of a group, parents first."""
    located = (item_at(row) for row in rows.tolist())
    items = ParentRows((layer.key_at(place), layer.parents_at(place)) for layer, place in located)
    for number in items.ordered():
        yield int(rows[number])
