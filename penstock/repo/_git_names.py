"""What an import from git does to the names of a repository.

The repository gets the branches and tags of the git repository in place of its own, so a name may be removed, or move
to a commit that does not follow the one that it stood for. If the git repository has that commit, the name was moved or
deleted there: a branch was rebased, or merged and deleted. If it does not have it, this is another git repository, or a
clone that is behind, and the names are foreign to it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.repo._graph import topological
from penstock.repo._keys import REVISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.repo._items import Items
    from penstock.repo._keys import Key
    from penstock.repo._refs import Ref

    _Moves = Mapping[bytes, tuple[bytes, bytes]]  # by name, the revision before and after
    _Parents = Callable[[bytes], tuple[bytes, ...] | None]

__all__ = ["NameChanges", "followed_names", "name_changes"]

_NAMES_AT_ONCE: Final = 512  # each is a bit in a number for every revision that is searched


@dataclass(frozen=True, slots=True)
class NameChanges:
    """Names that move to a commit that does not follow, or go, with what they stood for; some are foreign."""

    moved: Mapping[bytes, Ref]
    removed: Mapping[bytes, Ref]
    foreign: tuple[bytes, ...]


def name_changes(
    before: Mapping[bytes, Ref],
    after: Mapping[bytes, Ref],
    *,
    followed: Callable[[_Moves], set[bytes]],
    is_in_git: Callable[[bytes], bool],
) -> NameChanges:
    """Return what becomes of the names; ``followed`` returns those whose earlier revision is an ancestor of the new."""
    moves = {
        name: (ref.revision, after[name].revision)
        for name, ref in before.items()
        if name in after and after[name].revision != ref.revision
    }
    moved = {name: before[name] for name in sorted(moves.keys() - followed(moves))}
    removed = {name: ref for name, ref in before.items() if name not in after}
    foreign = sorted(name for name, ref in (moved | removed).items() if not is_in_git(ref.revision))
    return NameChanges(moved, removed, tuple(foreign))


def followed_names(moves: _Moves, *, items: Items, new_parents: _Parents) -> set[bytes]:
    """Return the names whose earlier revision, which is stored, is an ancestor of the new one, which need not be.

    ``new_parents`` returns the parents of a commit that is not stored, and None if it is nowhere. All names are
    followed together, the latest revision first, and no further back than to the first of the earlier revisions:
    parents are stored before their children.
    """
    names, found = list(moves), set[bytes]()
    for start in range(0, len(names), _NAMES_AT_ONCE):
        part = {name: moves[name] for name in names[start : start + _NAMES_AT_ONCE]}
        reached = _reached(part, items, new_parents)
        found.update(
            name for number, (name, (before, _)) in enumerate(part.items()) if reached.get(before, 0) >> number & 1
        )
    return found


def _reached(moves: _Moves, items: Items, new_parents: _Parents) -> dict[bytes, int]:
    """Return revisions, with a bit for each name, by number, whose new revision they are an ancestor of."""
    reached: dict[bytes, int] = {}

    def reach(revisions: Iterable[bytes], bits: int) -> None:
        for revision in revisions:
            reached[revision] = reached.get(revision, 0) | bits

    for number, (_, after) in enumerate(moves.values()):
        reach([after], 1 << number)
    for revision in _new_children_first(list(reached), items, new_parents):
        reach(new_parents(revision) or (), reached[revision])
    places = (items.revision_place(before) for before, _ in moves.values())
    first = min((place for place in places if place is not None), default=None)
    queue: list[tuple[tuple[int, ...], bytes]] = []

    def enter(revisions: Iterable[bytes]) -> None:
        for revision in revisions:
            place = items.revision_place(revision)
            if place is not None and first is not None and place > first:
                heapq.heappush(queue, (tuple(-part for part in place), revision))

    enter(reached)
    while queue:
        _, revision = heapq.heappop(queue)
        parents = items.revision_parents(revision) or []
        enter([parent for parent in dict.fromkeys(parents) if parent not in reached])
        reach(parents, reached[revision])
    return reached


def _new_children_first(heads: list[bytes], items: Items, new_parents: _Parents) -> Iterator[bytes]:
    """Return the commits that are not stored yet, each behind its children."""
    parents: dict[Key, list[Key]] = {}
    waiting = heads
    while waiting:
        revision = waiting.pop()
        key = (REVISIONS, revision)
        if key not in parents and key not in items:
            names = new_parents(revision) or ()
            parents[key] = [(REVISIONS, name) for name in names]
            waiting += names
    return (key[-1] for key in reversed(list(topological(parents))))
