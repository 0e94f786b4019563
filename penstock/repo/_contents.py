"""Contents: what a repository and a bundle can both be asked for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import BadRecord
from penstock.model import check_kind
from penstock.repo._graph import ancestry, topological
from penstock.repo._inventory import Inventory, changed_paths
from penstock.repo._items import Items
from penstock.repo._keys import INVENTORIES, REVISIONS, Key
from penstock.repo._records import UNORDERED
from penstock.repo._refs import decode_refs, refs_keys, tag_chain
from penstock.repo._revision import RevisionText
from penstock.repo._search import Everything
from penstock.repo._stream import stream_of
from penstock.repo.kinds import annotate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo._refs import Ref
    from penstock.repo._search import Search
    from penstock.repo._stream import Ordering, RepositoryStream, StreamCheck

__all__ = ["RepositoryContents"]


class RepositoryContents(Items):
    """Items by their keys, and streams of them. Threads may share it."""

    @property
    def below(self) -> RepositoryContents | None:
        """The contents that these are stacked on."""
        return self._below if isinstance(self._below, RepositoryContents) else None

    def get_repository_stream(
        self,
        search: Search,
        ordering: Ordering = UNORDERED,
        complete_inventory: bool = False,  # as the specification has it
    ) -> RepositoryStream:
        """Return the items of the revisions that a search finds, as a stream to be read once from front to back.

        An unordered stream comes as it is stored, which is quickest; in a topological one parents come before their
        children, and texts before the inventories and the revisions that name them. An inventory comes as it is stored,
        mostly as a delta on that of a parent; with ``complete_inventory`` each comes as a full text.
        """
        return stream_of(self, search, ordering, complete_inventory=complete_inventory)

    def revisions(self) -> Iterator[bytes]:
        """Return the ids of all revisions, in the order in which they are stored."""
        for record in self.get_repository_stream(Everything()).iter_contents():
            if record.key_prefix == (REVISIONS,):
                yield from (factory.key[-1] for factory in record.entries)

    def revisions_beginning(self, beginning: bytes) -> list[bytes]:
        """Return the ids that begin with some bytes, sorted, of the revisions that branches and tags lead to.

        This walks over all of them: the index has hashes, which tell nothing about the beginning of an id.
        """
        check_kind("beginning", beginning, bytes)
        return sorted(name for name in ancestry(self.heads(), self.revision_parents) if name.startswith(beginning))

    def revision(self, revision: bytes) -> RevisionText:
        """Return what the text of a revision says: author, committer, message; see ``_revision``."""
        return RevisionText.parse(revision, self.text((REVISIONS, revision)))

    def inventory(self, revision: bytes, *, like: Inventory | None = None) -> Inventory:
        """Return the files of a revision, by their paths; ``BadRecord`` if its inventory is in another format.

        If you read many of them, ``like`` is one that has most of the same files: it makes this several times faster.
        """
        return Inventory(revision, self.text((INVENTORIES, revision)), like=like)

    def changed_paths(self, revision: bytes) -> dict[bytes, bytes]:
        """Return the paths of the files that got another text in a revision, by their ids.

        The stored inventory is mostly a delta, which has the lines that changed, and is not made whole for this.
        """
        return changed_paths(revision, *self.stored((INVENTORIES, revision)))

    def refs(self) -> dict[bytes, Ref]:
        """Return the branches and tags, by their names.

        Of contents that are stacked on others, this includes the names of those, as far as they are not here, too.
        """
        refs = self.below.refs() if self.below is not None else {}
        for key in refs_keys(self):
            with suppress(BadRecord):  # a hostile writer can store one that is none; a check names it
                return refs | decode_refs(key, self.text(key))
        return refs

    def tags_of(self, ref: Ref) -> dict[Key, bytes]:
        """Return the text of the annotated tag that a name stands for, and those of the tags that it tags in turn."""
        return dict(tag_chain(ref, lambda key: self.text(key) if key in self else None))

    def heads(self) -> list[bytes]:
        """Return the revisions that branches and tags name; where nothing is named, those without children."""
        named = {ref.revision for ref in self.refs().values()}
        if not named:
            named = set(self.revisions())
            for revision in tuple(named):
                named.difference_update(self.revision_parents(revision) or ())
        return sorted(named)

    def check(self) -> StreamCheck:
        """Reconstruct every item, and compare it with its sha1."""
        return self.get_repository_stream(Everything()).check()

    def annotate(self, key: Key) -> list[tuple[bytes, bytes]]:
        """Return each line of a text, and the revision that it comes from."""
        origins = dict[Key, list[bytes]]()
        for ancestor in self._parents_first(key):
            origins[ancestor] = annotate(
                self.text(ancestor),
                key=ancestor,
                parents=self.parents(ancestor),
                get_text=self.text,
                get_annotations=origins.__getitem__,
            )
        return list(zip(origins[key], _lines(self.text(key)), strict=True))

    def _parents_first(self, key: Key) -> Iterator[Key]:
        """Return the ancestors of a text that are here, and the text itself, parents first."""
        parents: dict[Key, tuple[Key, ...]] = {}
        waiting = [key]
        while waiting:
            current = waiting.pop()
            if current not in parents:
                parents[current] = tuple(parent for parent in self.parents(current) if parent in self)
                waiting += parents[current]
        return topological(parents)


def _lines(text: bytes) -> list[bytes]:
    """Return the lines of a text, each with the newline that ends it."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
