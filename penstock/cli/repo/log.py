"""``penstock repo log``: list revisions."""

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, as_dict, opened_contents, printed, read_revision, when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo import RepositoryContents, RevisionText

EXAMPLE = "penstock repo log code/project --limit 3"


def log(
    stream: ContentsArgument,
    revision: Annotated[
        str | None,
        typer.Argument(
            metavar="[REV]", help="Begin here: an id, a branch or a tag. Default: all of them.", show_default=False
        ),
    ] = None,
    *,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The number of revisions.", show_default=False)
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List revisions and their ancestors, the newest first: id, time, author, and the first line of the message."""
    with opened_contents(stream, store) as contents:
        heads = contents.heads() if revision is None else [read_revision(contents, revision)]
        revisions = islice(_newest_first(contents, heads), limit)
        if as_json:
            for name, text in revisions:
                print_json(as_dict(name, text))
        else:
            print_rows(("revision", "time", "author", "message"), (_row(name, text) for name, text in revisions))


def _newest_first(contents: "RepositoryContents", heads: list[bytes]) -> "Iterator[tuple[bytes, RevisionText]]":
    """Return revisions by the times of their commits, each behind a child of it."""
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
        _, name, text = heapq.heappop(waiting)
        yield name, text
        enter(contents.revision_parents(name) or [])


def _row(name: bytes, text: "RevisionText") -> tuple[str, ...]:
    subject = text.decoded(text.message).strip().partition("\n")[0]
    return (
        printed(name),
        when(text.committer),
        *(" ".join(part.split()) for part in (text.decoded(text.author.name), subject)),
    )
