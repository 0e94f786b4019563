"""The stream of a search: items as records, from front to back, in bounded memory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from penstock.errors import BadArgument, CorruptData, PenstockError, RepositoryError
from penstock.model import check_kind, shown
from penstock.repo._keys import INVENTORIES, REVISIONS, Key, common_prefix
from penstock.repo._ordering import parents_first
from penstock.repo._packer import Packer
from penstock.repo._records import TOPOLOGICAL, UNORDERED, AbsentFactory, Record
from penstock.repo._refs import REFS
from penstock.repo._search import found_revisions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.repo._items import Items
    from penstock.repo._ordering import Located
    from penstock.repo._records import Factory
    from penstock.repo._search import Search

__all__ = ["Ordering", "RepositoryStream", "StreamCheck", "check_stream_arguments", "stream_of"]

Ordering = Literal["unordered", "topological"]


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """What a check has found: how many items are not wrong, what is missing, and what is wrong.

    ``items`` belong to revisions; each change of the names has left one of the ``name_lists``. ``foreign_events`` are
    events of the stream that belong to no insert. Deltas on items that are missing, or that are ``elsewhere``, are
    counted as ``unresolved``, too. A bundle of changes names the items that are elsewhere.
    """

    items: int
    missing: tuple[Key, ...]
    errors: tuple[PenstockError, ...]
    elsewhere: tuple[Key, ...] = ()
    unresolved: int = 0
    name_lists: int = 0
    foreign_events: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing, and all that could be reconstructed is what its sha1 says."""
        return not self.missing and not self.errors


class RepositoryStream:
    """Records, to be read once from front to back."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records: Iterator[Record] | None = records

    def iter_contents(self) -> Iterator[Record]:
        """Return the records; read the entries of each before you go on to the next."""
        if self._records is None:
            raise BadArgument("this stream was read already: ask for another one")
        records, self._records = self._records, None
        return records

    def check(self) -> StreamCheck:
        """Read the stream to its end, reconstruct every item, and compare it with its sha1.

        What is wrong with an item does not end the check, and one damaged block is one error.
        """
        errors: dict[str, PenstockError] = {}
        records = self.iter_contents()
        with tempfile.TemporaryFile() as file, Packer(file) as packer:
            try:
                for record in records:
                    for factory in record.entries:
                        try:
                            packer.add(record.key_prefix, factory)
                        except (RepositoryError, CorruptData, BadArgument) as error:
                            errors.setdefault(str(error), error)
                packer.check_graph()
            except (RepositoryError, CorruptData) as error:
                errors.setdefault(str(error), error)
            missing = tuple(sorted({*packer.missing, *packer.absent}))
            held, lists = packer.held_count, packer.count_of(REFS)
            items = packer.added_count + held - lists
            return StreamCheck(items, missing, tuple(errors.values()), unresolved=held, name_lists=lists)


def stream_of(items: Items, search: Search, ordering: Ordering, *, complete_inventory: bool) -> RepositoryStream:
    """Return the stream of the revisions that a search finds."""
    check_stream_arguments(ordering, complete_inventory)
    revisions, absent = found_revisions(search, items)
    located = _located(items, revisions)
    if ordering == TOPOLOGICAL:
        located = parents_first(located)
    return RepositoryStream(_records(located, absent, complete_inventory=complete_inventory))


def check_stream_arguments(ordering: object, complete_inventory: object) -> None:
    """Require what a stream is asked for with."""
    if ordering not in {UNORDERED, TOPOLOGICAL}:
        raise BadArgument(f"invalid ordering {shown(ordering)}: use UNORDERED or TOPOLOGICAL")
    check_kind("complete_inventory", complete_inventory, bool)


def _located(items: Items, revisions: frozenset[bytes] | None) -> Iterator[Located]:
    """Return where all items of some revisions are; one that is stored in several layers counts in the upper one."""
    above: list[Items] = []
    for layer in items.layers:
        for place in layer.places(revisions):
            if not above or not any(upper.is_own(layer.key_at(place)) for upper in above):
                yield layer, place
        above.append(layer)


def _records(located: Iterable[Located], absent: Iterable[bytes], *, complete_inventory: bool) -> Iterator[Record]:
    if absent:
        yield Record((REVISIONS,), iter([AbsentFactory((revision,)) for revision in absent]))

    def prefix_of(found: Located) -> Key:
        layer, place = found
        return common_prefix(layer.key_at(place), layer.parents_at(place))

    for prefix, together in groupby(located, key=prefix_of):
        yield Record(prefix, _factories(together, prefix, complete_inventory=complete_inventory))


def _factories(located: Iterable[Located], prefix: Key, *, complete_inventory: bool) -> Iterator[Factory]:
    as_fulltext = complete_inventory and prefix[:1] == (INVENTORIES,)
    for layer, place in located:
        yield layer.factory(place, prefix=len(prefix), as_fulltext=as_fulltext)
