"""Searches: which revisions a stream is made of."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import BadArgument
from penstock.model import as_list, shown
from penstock.repo._graph import ancestry
from penstock.repo._keys import REVISIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.repo._items import Items

__all__ = [
    "AncestryOf",
    "Between",
    "Everything",
    "Revisions",
    "Search",
    "found_revisions",
    "requested_search",
    "search_request",
]


@dataclass(frozen=True, slots=True)
class Everything:
    """All that is there."""


@dataclass(frozen=True, slots=True)
class Revisions:
    """These revisions, and no others."""

    ids: Iterable[bytes]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _checked(self.ids))


@dataclass(frozen=True, slots=True)
class AncestryOf:
    """These revisions and all their ancestors."""

    ids: Iterable[bytes]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _checked(self.ids))


@dataclass(frozen=True, slots=True)
class Between:
    """These revisions and their ancestors, without the ones in ``known`` and their ancestors.

    An ancestor of ``known`` that was stored behind its own children may be found nevertheless.
    """

    ids: Iterable[bytes]
    known: Iterable[bytes] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _checked(self.ids))
        object.__setattr__(self, "known", _checked(self.known))


Search: TypeAlias = Everything | Revisions | AncestryOf | Between


def search_request(search: Search) -> tuple[str, list[bytes], list[bytes]]:
    """Return a search in the words of the wire: its name, its revisions, and the known ones."""
    match search:
        case Everything():
            return "everything", [], []
        case Revisions(ids):
            return "revisions", list(ids), []
        case AncestryOf(ids):
            return "ancestry", list(ids), []
        case Between(ids, known):
            return "between", list(ids), list(known)
        case _:
            raise _invalid(search)


def requested_search(name: str, ids: Iterable[bytes], known: Iterable[bytes]) -> Search:
    """Return the search that a request names."""
    match name:
        case "everything":
            return Everything()
        case "revisions":
            return Revisions(ids)
        case "ancestry":
            return AncestryOf(ids)
    return Between(ids, known)


def found_revisions(search: Search, items: Items) -> tuple[frozenset[bytes] | None, list[bytes]]:
    """Return the revisions that a search finds, None for everything, and those it names that are not there."""
    match search:
        case Everything():
            return None, []
        case Revisions(ids):
            return _present(ids, items)
        case AncestryOf(ids):
            present, absent = _present(ids, items)
            return frozenset(ancestry(present, items.revision_parents)), absent
        case Between(ids, known):
            present, absent = _present(ids, items)
            return _between(present, known, items), absent
        case _:
            raise _invalid(search)


def _invalid(search: object) -> BadArgument:
    return BadArgument(f"invalid search {shown(search)}: use Everything, Revisions, AncestryOf or Between")


def _present(ids: Iterable[bytes], items: Items) -> tuple[frozenset[bytes], list[bytes]]:
    ids = tuple(dict.fromkeys(ids))
    present = frozenset(revision for revision in ids if (REVISIONS, revision) in items)
    return present, [revision for revision in ids if revision not in present]


def _between(heads: frozenset[bytes], known: Iterable[bytes], items: Items) -> frozenset[bytes]:
    """Walk back from both sides, the latest revision first, until all that is left is known.

    This looks at what lies between, not at the whole history: parents are stored before their children.
    """
    is_known = dict.fromkeys(heads, False) | dict.fromkeys(known, True)
    queue: list[tuple[tuple[int, ...], bytes]] = []
    unknown, found = set[bytes](), set[bytes]()  # still in the queue; taken from it

    def enter(revision: bytes) -> None:
        if (place := items.revision_place(revision)) is not None:
            heapq.heappush(queue, (tuple(-part for part in place), revision))
            if not is_known[revision]:
                unknown.add(revision)

    for revision in is_known:
        enter(revision)
    while unknown:
        _, revision = heapq.heappop(queue)
        if revision in unknown:
            unknown.remove(revision)
            found.add(revision)
        for parent in items.revision_parents(revision) or ():
            if parent not in is_known:
                is_known[parent] = is_known[revision]
                enter(parent)
            elif is_known[revision] and not is_known[parent]:
                is_known[parent] = True
                unknown.discard(parent)
                if parent in found:
                    found.remove(parent)
                    enter(parent)
    return frozenset(found)


def _checked(ids: Iterable[bytes]) -> tuple[bytes, ...]:
    revisions = as_list("revisions", ids, "bytes")
    if not all(type(revision) is bytes and revision for revision in revisions):
        raise BadArgument(f"invalid revisions {shown(ids)}: use bytes, none of them empty")
    return tuple(revisions)
