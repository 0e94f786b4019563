"""The graph of parents: ancestors, and the order in which parents come first.

Parents that are not there are ghosts: they are named, and nothing more is known of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.repo._keys import Key

__all__ = ["ancestry", "check_acyclic", "is_own_ancestor", "topological"]


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
