"""Places in a repository as arguments name them: a revision, or a file in it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli._output import fail
from penstock.cli.repo._contents import printed
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.repo import Key, Ref, RepositoryContents

__all__ = ["PlaceArgument", "read_place", "read_revision", "short_id_on_terminal"]

PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH[@REV]",
        help="The path of a file, and the revision: an id or its beginning, a branch or a tag; HEAD by default.",
    ),
]

_ID: Final = re.compile(r"[0-9a-f]{40}")
_BEGINNING: Final = re.compile(r"[0-9a-f]{4,39}")  # a shorter one is that of many
_SHORT_SIZE: Final = 12
_SHOWN_MAX: Final = 3


def short_id_on_terminal(revision: str) -> str:
    """Return an id of git, on a terminal shortened so far that it still is the only one in most repositories."""
    return revision[:_SHORT_SIZE] if sys.stdout.isatty() and _ID.fullmatch(revision) else revision


def read_revision(contents: RepositoryContents, text: str) -> bytes:
    """Return the id of the revision that a text names: by its id or the beginning of it, or as a branch or a tag."""
    found = _named_revision(contents, text) or _begun_revision(contents, text)
    if found is None:
        names = "penstock repo log lists the revisions, and penstock repo refs the branches and tags"
        raise BadArgument(f"no revision {text!r}: use an id or at least 4 digits of it, a branch or a tag; {names}")
    return found


def read_place(contents: RepositoryContents, text: str) -> Key:
    """Return the key of the text that ``PATH@REV`` means."""
    path, found = _split_place(contents, text)
    entry = contents.inventory(found).get(os.fsencode(path))
    if entry is None:
        fail(f"no file {path!r} in revision {printed(found)}: penstock repo ls lists the files of a revision")
    return entry.key


def _named_revision(contents: RepositoryContents, text: str) -> bytes | None:
    """Return the revision that a whole name stands for; None if it stands for none."""
    from penstock.repo import REVISIONS

    name = os.fsencode(text)
    refs: dict[bytes, Ref] = contents.refs()
    for ref in (name, b"refs/heads/" + name, b"refs/tags/" + name):
        if ref in refs:
            return refs[ref].revision
    if name and (REVISIONS, name) in contents:
        return name
    if text == "HEAD" and len(heads := contents.heads()) == 1:
        return heads[0]
    return None


def _begun_revision(contents: RepositoryContents, text: str) -> bytes | None:
    """Return the only revision whose id begins with some digits; None if there is none."""
    if not _BEGINNING.fullmatch(text):
        return None
    found = contents.revisions_beginning(text.encode())
    if len(found) > 1:
        ids = ", ".join(map(printed, found[:_SHOWN_MAX])) + (", …" if len(found) > _SHOWN_MAX else "")
        raise BadArgument(f"{len(found)} revisions begin with {text!r}: {ids}: use more digits")
    return found[0] if found else None


def _split_place(contents: RepositoryContents, text: str) -> tuple[str, bytes]:
    """Return path and revision, both of which may have an ``@``.

    The last ``@`` behind which a revision is named counts. If none is, the whole text is the path of a file of HEAD, or
    the beginning of an id is behind the last ``@``.
    """
    words = text.split("@")
    for number in range(len(words) - 1, 0, -1):
        if (revision := _named_revision(contents, "@".join(words[number:]))) is not None:
            return "@".join(words[:number]), revision
    if len(words) == 1 or _is_in_head(contents, text):
        return text, read_revision(contents, "HEAD")
    return "@".join(words[:-1]), read_revision(contents, words[-1])


def _is_in_head(contents: RepositoryContents, path: str) -> bool:
    with suppress(BadArgument):  # there need not be a HEAD
        return os.fsencode(path) in contents.inventory(read_revision(contents, "HEAD"))
    return False
