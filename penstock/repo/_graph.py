"""The graph of parents: ancestors, and the order in which parents come first.

Parents that are not there are ghosts: they are named, and nothing more is known of them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from penstock.errors import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.repo._keys import Key

__all__ = ["ancestry", "check_acyclic", "is_own_ancestor", "topological", "topological_rows"]


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


def topological_rows(parents: Sequence[int], ends: Sequence[int]) -> Iterator[int]:
    """Return all rows, each behind its parents; rows that do not depend on each other stay in their order.

    The parents of a row, as rows, are those from where the row before it ends to ``ends[row]``; -1 is a ghost.
    A row that is its own ancestor, which only a hostile writer can store, comes before one of its parents.
    """
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
