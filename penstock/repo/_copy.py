"""Copying from one repository to another: only revisions that the target lacks, and then the names.

The source is searched from its heads, and from parents that the target lacks, back to revisions that the target has.
What is missing comes parents first, in batches that are inserted each at once, so a copy that was interrupted goes on
behind the last one. A batch is made of many requests, because what is inserted together takes less space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import MissingRevision, RefsDiverged
from penstock.model import check_kind
from penstock.repo._contents import RepositoryContents
from penstock.repo._graph import ancestry, topological
from penstock.repo._keys import REVISIONS
from penstock.repo._records import ABSENT, Record
from penstock.repo._repository import Repository
from penstock.repo._search import Revisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.repo._keys import Key
    from penstock.repo._refs import Ref

__all__ = ["CopyResult", "copy_revisions"]

_BATCH_REVISIONS: Final = 5_000
_BATCH_SIZE: Final = 256 << 20
_REQUEST_REVISIONS: Final = 200  # whose ids a server takes at once


@dataclass(frozen=True, slots=True)
class CopyResult:
    """How many revisions and items were new, and which names have changed."""

    revisions: int
    items: int
    names: tuple[bytes, ...]


def copy_revisions(
    source: RepositoryContents,
    target: Repository,
    *,
    force: bool = False,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> CopyResult:
    """Copy what the target lacks of the branches and tags of the source, and let it have the same names.

    A name that the source does not have stays. A branch of the target that is not behind that of the source is
    ``RefsDiverged``, before anything is copied, or when somebody else has moved it meanwhile; with ``force`` it is
    moved nevertheless, and no revision is lost.
    """
    check_kind("source", source, RepositoryContents)
    check_kind("target", target, Repository)
    target.refresh()
    theirs = source.refs()
    changed: set[bytes] = set()

    def moved() -> dict[bytes, Ref]:
        """Return the names of the target as they are to be; others may have changed them since the last look."""
        ours = target.refs()
        changed.clear()
        changed.update(name for name, ref in theirs.items() if ours.get(name) != ref)
        diverged = sorted(
            name for name in changed & ours.keys() if not _follows(ours[name], theirs[name], source, target)
        )
        if diverged and not force:
            raise RefsDiverged(diverged)
        return ours | theirs

    moved()
    missing = _missing(source, target)
    on_progress(0, len(missing))
    items = done = 0
    while done < len(missing):
        batch = _CopyBatch(source, missing, done, on_progress)
        result = target.insert_stream(batch)
        if result.missing:
            raise MissingRevision(target.stream, result.missing[0][-1])
        items, done = items + result.added, batch.end
        on_progress(done, len(missing))
    if changed:
        tags = {key: text for name in changed for key, text in source.tags_of(theirs[name]).items()}
        target.change_refs(moved, tags=tags)
    return CopyResult(len(missing), items, tuple(sorted(changed)))


class _CopyBatch:
    """The items of the next revisions, as a stream to be inserted."""

    def __init__(
        self,
        source: RepositoryContents,
        revisions: list[bytes],
        start: int,
        on_progress: Callable[[int, int], object],
    ) -> None:
        self._source, self._revisions, self._on_progress = source, revisions, on_progress
        self.end = start

    def iter_contents(self) -> Iterator[Record]:
        """Return the records of one request after another, until the batch is large enough."""
        size, end = 0, min(self.end + _BATCH_REVISIONS, len(self._revisions))
        while True:
            ids = self._revisions[self.end : min(self.end + _REQUEST_REVISIONS, end)]
            for record in self._source.get_repository_stream(Revisions(ids)).iter_contents():
                for factory in record.entries:
                    if factory.storage_kind != ABSENT:
                        size += len(factory.get_bytes_as(factory.storage_kind))
                    yield Record(record.key_prefix, iter([factory]))
            self.end += len(ids)
            if self.end == end or size > _BATCH_SIZE:
                return
            self._on_progress(self.end, len(self._revisions))


def _follows(before: Ref, after: Ref, source: RepositoryContents, target: Repository) -> bool:
    """Whether a revision is an ancestor of the one that takes its place; a bundle of changes has only the last ones."""

    def parents_of(revision: bytes) -> list[bytes] | None:
        parents = source.revision_parents(revision)
        return parents if parents is not None else target.revision_parents(revision)

    return any(revision == before.revision for revision in ancestry([after.revision], parents_of))


def _missing(source: RepositoryContents, target: Repository) -> list[bytes]:
    """Return the revisions that the target lacks, parents first."""
    parents: dict[Key, list[Key]] = {}
    waiting = [*source.heads(), *target.ghosts()]
    while waiting:
        revision = waiting.pop()
        key = (REVISIONS, revision)
        if key in parents or key in target or (found := source.revision_parents(revision)) is None:
            continue
        parents[key] = [(REVISIONS, parent) for parent in found]
        waiting += found
    return [key[-1] for key in topological(parents)]
