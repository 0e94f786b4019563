"""The objects of a git repository: commits, trees, blobs and tags, each checked against its id."""

from __future__ import annotations

import hashlib
import os
import re
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from dulwich.errors import NotGitRepository
from dulwich.object_store import PackBasedObjectStore
from dulwich.objects import ObjectID
from dulwich.repo import Repo

from penstock.errors import BadArgument, RepositoryError
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BLOB", "COMMIT", "TAG", "TREE", "GitObjects", "TreeEntry", "asked", "open_git"]

_TREE_ENTRIES_MAX: Final = 100_000  # of all trees in memory
_BASES_SIZE_MAX: Final = 48 << 20  # of objects that dulwich remembers, of each pack
COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4
_ID: Final = re.compile(rb"[0-9a-f]{40}")
_KINDS: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}

_T = TypeVar("_T")

TreeEntry = tuple[int, bytes]


@contextmanager
def open_git(path: str | os.PathLike[str]) -> Iterator[Repo]:
    """Open a git repository; ``BadArgument`` if it is none that can be imported."""
    try:
        git = Repo(os.fspath(path))
    except NotGitRepository:
        raise BadArgument(f"no git repository in {shown(os.fspath(path))}: name its folder") from None
    try:
        if git.object_format.name != "sha1":
            raise BadArgument(f"cannot import {shown(os.fspath(path))}: its objects are named by sha256")
        if isinstance(git.object_store, PackBasedObjectStore):
            git.object_store.delta_base_cache_limit = _BASES_SIZE_MAX
        yield git
    finally:
        with suppress(BufferError):  # of a pack in which damage was found, and which an error may still refer to
            git.close()


def asked(call: Callable[[], _T]) -> _T:
    """Ask dulwich, and make whatever it raises for a damaged repository one error."""
    try:
        return call()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - damage shows as an error of any kind
        reason = f"{type(error).__name__} {error}"
    raise RepositoryError(f"the git repository cannot be read: {reason}: run git fsck there")


class GitObjects:
    """The objects of a git repository."""

    def __init__(self, git: Repo) -> None:
        self.store = git.object_store
        self.shallow = frozenset(asked(git.get_shallow))  # commits whose parents are not there, and need not be
        self._trees: OrderedDict[bytes, dict[bytes, TreeEntry]] = OrderedDict()
        self._entries = 0

    def has(self, name: bytes) -> bool:
        """Whether an object is there; a name that git does not give is that of none."""
        return _ID.fullmatch(name) is not None and asked(lambda: ObjectID(name) in self.store)

    def kind(self, name: bytes) -> int:
        """Return what an object is."""
        return self._raw(name)[0]

    def read(self, name: bytes, kind: int) -> bytes:
        """Return an object of a kind; an error if it is not the one with this name."""
        found, data = self._raw(name)
        digest = hashlib.sha1(b"%b %d\0" % (_KINDS[kind], len(data)), usedforsecurity=False)
        digest.update(data)
        if found != kind or digest.hexdigest().encode() != name:
            raise RepositoryError(f"the git repository is damaged: object {shown(name)} is another one")
        return data

    def tree(self, name: bytes) -> dict[bytes, TreeEntry]:
        """Return the entries of a tree: modes and ids, by names."""
        tree = self._trees.get(name)
        if tree is None:
            data = self.read(name, TREE)
            tree = self._trees[name] = asked(lambda: _parsed_tree(data))
            self._entries += len(tree)
            while self._entries > _TREE_ENTRIES_MAX and len(self._trees) > 1:
                self._entries -= len(self._trees.popitem(last=False)[1])
        return tree

    def _raw(self, name: bytes) -> tuple[int, bytes]:
        if not self.has(name):
            raise RepositoryError(f"the git repository lacks object {shown(name)}: fetch it, or run git fsck there")
        return asked(lambda: self.store.get_raw(ObjectID(name)))


def _parsed_tree(data: bytes) -> dict[bytes, TreeEntry]:
    entries, start = {}, 0
    while start < len(data):
        space, end = data.index(b" ", start), data.index(b"\0", start)
        entries[data[space + 1 : end]] = int(data[start:space], 8), data[end + 1 : end + 21].hex().encode()
        start = end + 21
    return entries
