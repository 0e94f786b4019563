"""A project in git, for tests of the commands for repositories."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import penstock
from penstock.repo import Bundle, Everything, Repository, copy_revisions
from penstock.repo.git import import_git
from tests.repo.git_history import History, plain

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store


def make_project(folder: Path, *, is_imported: bool, store: Store | None = None) -> History:
    """Make what the examples need: a git repository, and of it a stream, a bundle and a copy in another store.

    The stream is in the folder's own store, unless another is passed.
    """
    history = History()
    root = history.commit((), {b"README.md": plain(b"# Project\n")}, message=b"Begin\n")
    history.commit([root], {b"README.md": plain(b"# Project\nMore.\n")}, message=b"Say more\n\nMuch.\n")
    history.name(b"refs/heads/main", history.count)
    history.name(b"refs/tags/v1", root)
    history.write(folder / "project")
    if is_imported:
        own = penstock.connect(folder / "penstock-data") if store is None else nullcontext(store)
        with own as opened, penstock.connect(folder / "backup") as other:
            repo = Repository.open(opened, "code/project", create=True)
            import_git(folder / "project", repo)
            Bundle.write(folder / "project.bundle", repo.get_repository_stream(Everything()))
            copy_revisions(repo, Repository.open(other, "code/project", create=True))
    return history
