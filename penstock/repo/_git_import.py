"""From git: all commits of the branches and tags of a git repository become revisions.

A revision has the id of its commit. Commits that are stored already are not read again, and the others come in batches
of up to a gigabyte, parents first, each of them one insert: an import that was interrupted goes on where it was.

The inventory of a commit is that of its first parent with the paths that differ. Trees are compared by their ids, so
that equal folders are not looked into. A file that was renamed keeps its file id; dulwich finds renames, as git does,
by comparing what was added with what was deleted. A merge takes a file that is the same in another parent from there,
with its id and its revision. All this depends on nothing but the commit and its ancestors: two imports of the same
commits make the same items.
"""

from __future__ import annotations

import stat
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from dulwich.diff_tree import CHANGE_RENAME, RenameDetector
from dulwich.objects import ObjectID

from penstock.errors import ForeignNames
from penstock.model import check_kind
from penstock.repo._git_names import NameChanges, followed_names, name_changes
from penstock.repo._git_objects import BLOB, COMMIT, TAG, GitObjects, TreeEntry, asked, open_git
from penstock.repo._graph import topological
from penstock.repo._inventory import Inventory, InventoryEntry
from penstock.repo._keys import INVENTORIES, REVISIONS, SIGNATURES, TEXTS
from penstock.repo._records import ContentFactory, Record
from penstock.repo._refs import Ref, tag_chain
from penstock.repo._repository import Repository
from penstock.repo._revision import RevisionText, split_signature

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dulwich.repo import Repo

    from penstock.repo._keys import Key

__all__ = ["GitImportResult", "check_git", "import_git"]

_BATCH_SIZE: Final = 960 << 20  # of texts: a little less than what a packer sorts at a time
_BATCH_REVISIONS: Final = 20_000  # whose changes are in memory
_INVENTORY_LINES_MAX: Final = 500_000  # of all inventories in memory
_IMPORTED: Final = (b"refs/heads/", b"refs/tags/")

_Change = tuple[TreeEntry | None, TreeEntry | None]  # before, after


@dataclass(frozen=True, slots=True)
class GitImportResult:
    """What was imported: how many revisions were new, all branches and tags, and the names that lead to no commit.

    ``moved`` are names whose commits do not follow the earlier ones, and ``removed`` names that are gone; both with
    what they stood for.
    """

    revisions: int
    refs: Mapping[bytes, Ref]
    skipped: tuple[bytes, ...]
    moved: Mapping[bytes, Ref]
    removed: Mapping[bytes, Ref]


def check_git(path: str | os.PathLike[str]) -> None:
    """Require that a path is that of a git repository which can be imported, before anything is created for it."""
    with open_git(path):
        pass


def import_git(
    path: str | os.PathLike[str],
    repository: Repository,
    *,
    force: bool = False,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> GitImportResult:
    """Import what is new in the branches and tags of a git repository, which take the place of the names so far.

    A name that would move to a commit that does not follow, or be removed, is ``ForeignNames`` if the git repository
    does not have the commit that it stands for: before anything is changed, or when somebody else has set the name
    meanwhile. With ``force`` it is moved or removed nevertheless, and no revision is lost. ``on_progress`` is called
    with the number of commits that were read, and of all that are new.
    """
    check_kind("repository", repository, Repository)
    check_kind("force", force, bool)
    with open_git(path) as git:
        objects = GitObjects(git)
        refs, skipped = _refs(git, objects)
        repository.refresh()
        changes = _name_changes(objects, refs, repository, force=force)

        def checked_refs() -> Mapping[bytes, Ref]:
            nonlocal changes
            changes = _name_changes(objects, refs, repository, force=force)
            return refs

        missing = _missing(objects, {ref.revision for ref in refs.values()}, repository)
        importer = _Importer(objects, repository)
        done = 0
        while done < len(missing):
            batch = _Batch(importer, missing, done, on_progress)
            result = repository.insert_stream(batch)
            assert not result.missing, "a parent comes before its children"
            importer.forget_batch()
            done = batch.end
        on_progress(done, len(missing))
        chains = [tag_chain(ref, lambda key: objects.read(key[1], TAG)) for ref in refs.values()]
        repository.change_refs(checked_refs, tags=dict(chain.from_iterable(chains)))
    return GitImportResult(len(missing), refs, tuple(skipped), changes.moved, changes.removed)


def _refs(git: Repo, objects: GitObjects) -> tuple[dict[bytes, Ref], list[bytes]]:
    """Return the branches, the tags and HEAD, and the names of those that lead to no commit."""
    refs: dict[bytes, Ref] = {}
    skipped: list[bytes] = []
    for name, target in sorted(asked(git.get_refs).items()):
        if name != b"HEAD" and not name.startswith(_IMPORTED):
            continue
        revision, tag = bytes(target), bytes(target) if objects.kind(target) == TAG else None
        while objects.kind(revision) == TAG:
            revision = objects.read(revision, TAG).partition(b"\n")[0].removeprefix(b"object ")
        if objects.kind(revision) == COMMIT:
            refs[name] = Ref(revision, tag)
        else:
            skipped.append(name)
    return refs, skipped


def _name_changes(
    objects: GitObjects, refs: Mapping[bytes, Ref], repository: Repository, *, force: bool
) -> NameChanges:
    """Return what becomes of the names of a repository; an error if some are foreign to the git repository."""

    @cache  # many branches have the same new commits, which are asked for twice
    def new_parents(revision: bytes) -> tuple[bytes, ...] | None:
        return RevisionText.parse(revision, objects.read(revision, COMMIT)).parents if objects.has(revision) else None

    followed = partial(followed_names, items=repository, new_parents=new_parents)
    changes = name_changes(repository.refs(), refs, followed=followed, is_in_git=objects.has)
    if changes.foreign and not force:
        raise ForeignNames(repository.stream, list(changes.foreign))
    return changes


def _missing(objects: GitObjects, heads: set[bytes], repository: Repository) -> list[bytes]:
    """Return the commits that are not stored yet, parents first.

    Behind one that is stored, nothing is missing, unless the repository has ghosts, as of a clone that was shallow.
    """
    parents: dict[Key, list[Key]] = {}
    is_complete = not repository.ghosts()
    waiting = sorted(heads)
    while waiting:
        revision = waiting.pop()
        key = (REVISIONS, revision)
        if key in parents or (is_complete and key in repository):
            continue
        commit = RevisionText.parse(revision, objects.read(revision, COMMIT))
        present = () if revision in objects.shallow else commit.parents
        parents[key] = [(REVISIONS, parent) for parent in present]
        waiting += present
    return [key[-1] for key in topological(parents) if key not in repository]


class _Batch:
    """The items of the next commits, as a stream to be inserted."""

    def __init__(
        self, importer: _Importer, commits: Sequence[bytes], start: int, on_progress: Callable[[int, int], object]
    ) -> None:
        self._importer, self._commits, self._on_progress = importer, commits, on_progress
        self.end = start

    def iter_contents(self) -> Iterator[Record]:
        """Return records until the batch is large enough."""
        size = 0
        for revision in self._commits[self.end : self.end + _BATCH_REVISIONS]:
            self._on_progress(self.end, len(self._commits))
            for prefix, factory in self._importer.items(revision):
                if prefix[0] == TEXTS:
                    size += len(factory.get_bytes_as("fulltext"))
                yield Record(prefix, iter([factory]))
            self.end += 1
            if size > _BATCH_SIZE:
                return


class _Importer:
    """Makes the items of one commit after another, parents first."""

    def __init__(self, objects: GitObjects, repository: Repository) -> None:
        self._objects, self._repository = objects, repository
        self._inventories: OrderedDict[bytes, Inventory] = OrderedDict()
        self._lines = 0
        self._changes: dict[bytes, tuple[bytes | None, dict[bytes, InventoryEntry | None]]] = {}  # of the batch

    def forget_batch(self) -> None:
        """Drop what is in the repository now."""
        self._changes.clear()

    def items(self, revision: bytes) -> Iterator[tuple[Key, ContentFactory]]:
        """Return the items of a commit, each with its key prefix."""
        text, signature = split_signature(self._objects.read(revision, COMMIT))
        commit = RevisionText.parse(revision, text)
        tree = commit.header(b"tree") or b""
        parents = () if revision in self._objects.shallow else commit.parents
        inventories = [self._inventory(parent) for parent in parents] or [Inventory(revision)]
        before: list[bytes | None] = [_tree_of(self._objects, parent) for parent in parents]
        before = before or [None]
        differences = [self._difference(other, tree) for other in before]
        entries, blobs = self._entries(revision, inventories, differences, (before[0], tree))
        for path, blob in blobs.items():
            entry = entries[path]
            assert entry is not None
            text_parents = dict.fromkeys(
                inventory[known].revision
                for inventory in inventories
                if (known := inventory.path_of(entry.file_id)) is not None
            )
            data = blob if entry.kind == "submodule" else self._objects.read(blob, BLOB)
            yield (TEXTS, entry.file_id), _factory(revision, tuple(text_parents), data)
        inventory = inventories[0].changed(revision, entries)
        self._changes[revision] = (parents[0] if parents else None), entries
        self._remember(inventory)
        yield (INVENTORIES,), _factory(revision, commit.parents, inventory.text)
        yield (REVISIONS,), _factory(revision, commit.parents, text)
        if signature is not None:
            yield (SIGNATURES,), _factory(revision, (), signature)

    def _entries(
        self,
        revision: bytes,
        inventories: Sequence[Inventory],
        differences: Sequence[dict[bytes, _Change]],
        trees: tuple[bytes | None, bytes],
    ) -> tuple[dict[bytes, InventoryEntry | None], dict[bytes, bytes]]:
        """Return the paths that differ from the first parent, and the blobs of those that have a text of their own."""
        first, changes = inventories[0], differences[0]
        entries: dict[bytes, InventoryEntry | None] = {path: None for path, (_, new) in changes.items() if new is None}
        blobs: dict[bytes, bytes] = {}
        taken: set[bytes] = set()

        def is_free(file_id: bytes, path: bytes) -> bool:
            owner = first.path_of(file_id)
            return file_id not in taken and (owner is None or owner == path or owner in entries)

        def put(path: bytes, entry: InventoryEntry, blob: bytes | None) -> None:
            taken.add(entry.file_id)
            entries[path] = entry
            if blob is not None:
                blobs[path] = blob

        has_deleted, added = bool(entries), []
        for path, (old, new) in changes.items():
            if new is None:
                continue
            elsewhere = [
                inventory[path]
                for inventory, other in zip(inventories[1:], differences[1:], strict=True)
                if path not in other and path in inventory
            ]
            if old is not None:
                entry = next((entry for entry in elsewhere if is_free(entry.file_id, path)), None)
                put(path, *((entry, None) if entry else _modified(first[path], old, new, revision)))
            else:
                added.append((path, new, elsewhere))
        renames = self._renames(trees) if has_deleted and added else {}
        for path, new, elsewhere in added:
            entry = next((entry for entry in elsewhere if is_free(entry.file_id, path)), None)
            known = [inventory[path].file_id for inventory in inventories[1:] if path in inventory]
            source = renames.get(path)
            if entry is not None:
                put(path, entry, None)
            elif (file_id := next((known_id for known_id in known if is_free(known_id, path)), None)) is not None:
                put(path, InventoryEntry(new[0], revision, file_id), new[1])
            elif source is not None and is_free(first[source].file_id, path):
                old = changes[source][0]
                assert old is not None
                put(path, *_modified(first[source], old, new, revision))
            else:
                file_id = path if is_free(path, path) else path + b"@" + revision
                put(path, InventoryEntry(new[0], revision, file_id), new[1])
        return entries, blobs

    def _renames(self, trees: tuple[bytes | None, bytes]) -> dict[bytes, bytes]:
        """Return from where files were moved, by where they are now."""
        before, after = (None if tree is None else ObjectID(tree) for tree in trees)
        detector = RenameDetector(self._objects.store, rewrite_threshold=None)
        changes = asked(lambda: detector.changes_with_renames(before, after))
        return {
            change.new.path: change.old.path
            for change in changes
            if change.type == CHANGE_RENAME and change.old is not None and change.new is not None
        }

    def _difference(self, before: bytes | None, after: bytes | None) -> dict[bytes, _Change]:
        """Return the paths that differ between two trees, sorted."""
        found: dict[bytes, _Change] = {}
        waiting: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", before, after)]
        while waiting:
            folder, *names = waiting.pop()
            old, new = (self._objects.tree(name) if name is not None else {} for name in names)
            for name in {name for name, _ in old.items() ^ new.items()}:
                sides = [_file_and_folder(tree.get(name)) for tree in (old, new)]
                path = folder + name
                if sides[0][0] is not None or sides[1][0] is not None:
                    found[path] = sides[0][0], sides[1][0]
                if sides[0][1] != sides[1][1]:
                    waiting.append((path + b"/", sides[0][1], sides[1][1]))
        return dict(sorted(found.items()))

    def _inventory(self, revision: bytes) -> Inventory:
        """Return the inventory of a commit that was imported before."""
        later = []
        current: bytes | None = revision
        while current is not None and current not in self._inventories and current in self._changes:
            later.append(current)
            current = self._changes[current][0]
        if current is None:
            inventory = Inventory(revision)
        elif (cached := self._inventories.get(current)) is not None:
            self._inventories.move_to_end(current)
            inventory = cached
        else:
            inventory = self._repository.inventory(current)
        for name in reversed(later):
            inventory = inventory.changed(name, self._changes[name][1])
        if inventory.revision not in self._inventories:
            self._remember(inventory)
        return inventory

    def _remember(self, inventory: Inventory) -> None:
        self._inventories[inventory.revision] = inventory
        self._lines += len(inventory)
        while self._lines > _INVENTORY_LINES_MAX and len(self._inventories) > 1:
            _, dropped = self._inventories.popitem(last=False)
            self._lines -= len(dropped)


def _tree_of(objects: GitObjects, commit: bytes) -> bytes:
    return objects.read(commit, COMMIT).partition(b"\n")[0].removeprefix(b"tree ")


def _modified(
    entry: InventoryEntry, old: TreeEntry, new: TreeEntry, revision: bytes
) -> tuple[InventoryEntry, bytes | None]:
    """Return a file as it is now, and its blob if the text is a new one."""
    if old[1] == new[1]:
        return InventoryEntry(new[0], entry.revision, entry.file_id), None
    return InventoryEntry(new[0], revision, entry.file_id), new[1]


def _file_and_folder(entry: TreeEntry | None) -> tuple[TreeEntry | None, bytes | None]:
    if entry is None:
        return None, None
    return (None, entry[1]) if stat.S_ISDIR(entry[0]) else (entry, None)


def _factory(revision: bytes, parents: Sequence[bytes], data: bytes) -> ContentFactory:
    return ContentFactory((revision,), tuple((parent,) for parent in parents), data)
