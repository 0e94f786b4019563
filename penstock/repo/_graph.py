"""The graph of parents: ancestors, and the order in which parents come first.

Parents that are not there are ghosts: they are named, and nothing more is known of them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.repo._keys import Key

__all__ = ["ParentRows", "ancestry", "check_acyclic", "is_own_ancestor", "topological"]


def ancestry(heads: Iterable[bytes], get_parents: Callable[[bytes], Iterable[bytes] | None]) -> Iterator[bytes]:
    """Return revisions and all their ancestors, each once; ``get_parents`` returns None for a ghost."""
    waiting = list(dict.fromkeys(heads))
    seen = set(waiting)
    while waiting:
        revision = waiting.pop()
        parents = get_parents(revision)
        if parents is None:
            continue
        yield revision
        for parent in parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)


def topological(parents: Mapping[Key, Iterable[Key]]) -> Iterator[Key]:
    """Return all keys, each behind its parents; keys that do not depend on each other stay in their order."""
    done: set[Key] = set()
    for start in parents:
        path = [(start, iter(parents[start]))] if start not in done else []
        open_keys = {start}
        while path:
            key, rest = path[-1]
            for parent in rest:
                if parent in open_keys:
                    raise BadRecord(parent, "it is its own ancestor")
                if parent in parents and parent not in done:
                    path.append((parent, iter(parents[parent])))
                    open_keys.add(parent)
                    break
            else:
                path.pop()
                open_keys.discard(key)
                done.add(key)
                yield key


class ParentRows:
    """The parents of many items, as a few numbers for each. The numbers of items are called rows here.

    Keys are compared by their hashes, which differ from process to process, so that no source can make two of them
    equal.
    """

    def __init__(self, items: Iterable[tuple[Key, Iterable[Key]]]) -> None:
        hashes, parents, self._ends = array("q"), array("q"), array("q")
        for key, parent_keys in items:
            hashes.append(hash(key))
            parents.extend(map(hash, parent_keys))
            self._ends.append(len(parents))
        rows = _rows_of(np.frombuffer(parents, np.int64), np.frombuffer(hashes, np.int64))
        self._parents = array("q", rows.tobytes())

    def __len__(self) -> int:
        return len(self._ends)

    def ordered(self) -> Iterator[int]:
        """Return all rows, each behind its parents; rows that do not depend on each other stay in their order.

        A row that is its own ancestor, which only a hostile writer can store, comes before one of its parents.
        """
        return _topological_rows(self._parents, self._ends, lambda _: None)

    def circle(self) -> int | None:
        """Return a row that is its own ancestor, if there is one."""
        circular: list[int] = []
        for _ in _topological_rows(self._parents, self._ends, circular.append):
            if circular:
                return circular[0]
        return None


def _rows_of(wanted: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of the wanted hashes is among others; -1 if it is not."""
    if not len(hashes):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(hashes, kind="stable")
    places = np.minimum(np.searchsorted(hashes, wanted, sorter=order), len(hashes) - 1)
    rows = order[places]
    return np.where(hashes[rows] == wanted, rows, -1)


def _topological_rows(
    parents: Sequence[int], ends: Sequence[int], note_circle: Callable[[int], object]
) -> Iterator[int]:
    """Return rows behind their parents, which are those from where the row before it ends to ``ends[row]``."""
    places = array("q", [0, *ends[:-1]])  # of the parents to look at next
    unseen, is_open, done = range(3)
    states = bytearray(len(ends))
    for start in range(len(ends)):
        path = [start] if states[start] == unseen else []
        while path:
            row = path[-1]
            states[row] = is_open
            place = places[row]
            if place == ends[row]:
                states[row] = done
                yield path.pop()
                continue
            places[row] = place + 1
            parent = parents[place]
            if parent >= 0 and states[parent] == unseen:
                path.append(parent)
            elif parent >= 0 and states[parent] == is_open:
                note_circle(parent)


def check_acyclic(parents: Mapping[Key, Iterable[Key]]) -> None:
    """Require that no item is its own ancestor."""
    for _ in topological(parents):
        pass


def is_own_ancestor(key: Key, get_parents: Callable[[Key], Iterable[Key]]) -> bool:
    """Whether the parents of an item lead back to it."""
    waiting = list(get_parents(key))
    seen = set(waiting)
    while waiting and key not in seen:
        for parent in get_parents(waiting.pop()):
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return key in seen
