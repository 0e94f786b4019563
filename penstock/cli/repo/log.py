"""``penstock repo log``: list revisions."""

import heapq
import sys
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, as_dict, opened_contents, printed, when
from penstock.cli.repo._places import read_revision, short_id_on_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo import RepositoryContents, RevisionText

EXAMPLE = "penstock repo log code/project --limit 3"
_AUTHOR_SIZE = 16  # on a terminal: the messages need the space


def log(
    stream: ContentsArgument,
    revision: Annotated[
        str | None,
        typer.Argument(
            metavar="[REV]",
            help="Begin here: an id or its beginning, a branch or a tag. Default: all branches and tags.",
            show_default=False,
        ),
    ] = None,
    *,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The number of revisions.", show_default=False)
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List revisions and their ancestors, the newest first: id, time, author, and the first line of the message.

    On a terminal, ids of git are shortened to 12 digits, which all commands take, and authors to their names.
    """
    with opened_contents(stream, store) as contents:
        heads = contents.heads() if revision is None else [read_revision(contents, revision)]
        revisions = islice(_newest_first(contents, heads), limit)
        if as_json:
            for name, text in revisions:
                print_json(as_dict(name, text))
        else:
            print_rows(("revision", "time", "author", "message"), (_row(*found) for found in revisions), unbroken=2)


def _newest_first(contents: "RepositoryContents", heads: list[bytes]) -> "Iterator[tuple[bytes, RevisionText]]":
    """Return revisions by the times of their commits; of those at the same time, children come first."""
    from penstock.repo import REVISIONS

    seen = set[bytes]()
    waiting: list[tuple[int, bytes, RevisionText]] = []

    def enter(names: list[bytes]) -> None:
        for name in names:
            if name not in seen and (REVISIONS, name) in contents:
                seen.add(name)
                text = contents.revision(name)
                heapq.heappush(waiting, (-text.committer.time, name, text))

    enter(heads)
    while waiting:
        latest = waiting[0][0]
        group: dict[bytes, RevisionText] = {}
        while waiting and waiting[0][0] <= latest:  # and parents that a wrong clock made newer
            _, name, text = heapq.heappop(waiting)
            group[name] = text
            enter(contents.revision_parents(name) or [])
        parents = {name: contents.revision_parents(name) or [] for name in group}
        yield from ((name, group[name]) for name in _children_first(parents))


def _children_first(parents: dict[bytes, list[bytes]]) -> "Iterator[bytes]":
    """Return revisions, each behind all its children among them."""
    children = Counter(parent for names in parents.values() for parent in names)
    ready = [name for name in parents if not children[name]]
    while ready:
        name = ready.pop()
        yield name
        for parent in parents[name]:
            children[parent] -= 1
            if parent in parents and not children[parent]:
                ready.append(parent)


def _row(name: bytes, text: "RevisionText") -> tuple[str, ...]:
    subject = text.decoded(text.message).strip().partition("\n")[0]
    author = text.decoded(text.author.name)
    if sys.stdout.isatty():
        author = author.partition(" <")[0] or author
        author = author if len(author) <= _AUTHOR_SIZE else author[: _AUTHOR_SIZE - 1] + "…"
    words = (" ".join(part.split()) for part in (author, subject))
    return short_id_on_terminal(printed(name)), when(text.committer), *words
