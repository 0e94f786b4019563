"""What the commands for repositories share: a stream or a bundle to read, places in it, and how revisions look."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli._credentials import StoreCommand
from penstock.cli._output import count_of, fail, moment, print_json
from penstock.cli._store import existing_store
from penstock.errors import BadArgument, NoSuchStream, NotARepository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store
    from penstock.repo import Key, Person, Ref, Repository, RepositoryContents, RevisionText, StreamCheck

__all__ = [
    "BundleArgument",
    "ContentsArgument",
    "ForceOption",
    "NameOption",
    "OtherArgument",
    "PlaceArgument",
    "RepositoryArgument",
    "TwoStoresCommand",
    "as_dict",
    "is_bundle",
    "opened_contents",
    "opened_repository",
    "printed",
    "read_place",
    "read_revision",
    "report_check",
    "when",
]

RepositoryArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream of the repository: scope/name.")]
ContentsArgument = Annotated[
    str,
    typer.Argument(metavar="STREAM", help="The stream of the repository: scope/name; or a bundle: a file, https://…"),
]
BundleArgument = Annotated[str, typer.Argument(metavar="BUNDLE", help="The bundle: a file, https://… or s3://…")]
PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH@REV", help="The path of a file, and the revision: an id, a branch or a tag; HEAD by default."
    ),
]
OtherArgument = Annotated[
    str, typer.Argument(metavar="OTHER", help="The other store: a folder, or penstock://host:port.")
]
NameOption = Annotated[
    str | None,
    typer.Option("--as", metavar="STREAM", help="The name in the other store, if it is another.", show_default=False),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Move branches that have diverged, too.")]


class TwoStoresCommand(StoreCommand):
    """A command with another store, which may be on a server, too."""

    def names_server(self, context: typer.Context) -> bool:
        """Whether one of the stores is on a server."""
        return "://" in context.params["other"] or super().names_server(context)


def is_bundle(name: str) -> bool:
    """Whether a name is that of a bundle and not of a stream or a store."""
    return ("://" in name and not name.startswith("penstock://")) or Path(name).is_file()


@contextmanager
def opened_contents(name: str, store: str) -> Iterator[RepositoryContents]:
    """Open a bundle, or the repository on a stream."""
    from penstock.repo import Bundle

    if is_bundle(name):
        with Bundle.open(name) as bundle:
            yield bundle
    else:
        with existing_store(store) as opened:
            try:
                repository = opened_repository(opened, name)
            except NoSuchStream:
                fail(f"no bundle and no stream {name!r}: check the name")
            yield repository


def opened_repository(store: Store, name: str, *, create: bool = False) -> Repository:
    """Open the repository on a stream."""
    from penstock.repo import Repository

    try:
        return Repository.open(store, name, create=create)
    except NotARepository:
        fail(f"stream {name} is not a repository: name the stream of one, or a new one for penstock repo import")


def read_revision(contents: RepositoryContents, text: str) -> bytes:
    """Return the id of the revision that a text names: by its id, or as a branch or a tag."""
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
    raise BadArgument(f"no revision {text!r}: use an id, a branch or a tag; penstock repo log lists the revisions")


def read_place(contents: RepositoryContents, text: str) -> Key:
    """Return the key of the text that ``PATH@REV`` means."""
    path, found = _split_place(contents, text)
    entry = contents.inventory(found).get(os.fsencode(path))
    if entry is None:
        fail(f"no file {path!r} in revision {printed(found)}")
    return entry.key


def _split_place(contents: RepositoryContents, text: str) -> tuple[str, bytes]:
    """Return path and revision; both may have an ``@``, and the shortest name of a revision that exists is taken."""
    *words, last = text.split("@")
    if not words:
        return text, read_revision(contents, "HEAD")
    for number in range(len(words), 0, -1):
        with suppress(BadArgument):
            return "@".join(words[:number]), read_revision(contents, "@".join([*words[number:], last]))
    return "@".join(words), read_revision(contents, last)


def when(person: Person) -> str:
    """Return the time at which a person did something: a date on a terminal, else seconds."""
    try:
        datetime.fromtimestamp(person.time, UTC)
    except (OverflowError, OSError, ValueError):
        return str(person.time)
    return moment(person.time * 1000) if sys.stdout.isatty() else str(person.time)


def as_dict(revision: bytes, text: RevisionText) -> dict[str, Any]:
    """Return a revision as JSON has it."""
    people = {"author": text.author, "committer": text.committer}
    found: dict[str, Any] = {"revision": printed(revision), "parents": [printed(parent) for parent in text.parents]}
    for role, person in people.items():
        found[role] = text.decoded(person.name)
        found[f"{role}_time"], found[f"{role}_zone"] = person.time, printed(person.zone)
    return found | {"message": text.decoded(text.message)}


def printed(name: bytes) -> str:
    """Return a name as it is printed."""
    return name.decode(errors="backslashreplace")


def report_check(name: str, result: StreamCheck, *, as_json: bool) -> None:
    """Print what a check has found, and exit with 1 if something is wrong."""
    from penstock.repo import key_name

    missing, errors = [key_name(key) for key in result.missing], [str(error) for error in result.errors]
    if as_json:
        print_json({"items": result.items, "missing": missing, "errors": errors})
    else:
        for problem in [*errors, *(f"{key} is missing" for key in missing)]:
            typer.echo(problem)
        found = count_of(len(errors) + len(missing), "problem") if errors or missing else "all good"
        typer.echo(f"{name}: {count_of(result.items, 'item')}, {found}")
    if not result.is_good:
        raise typer.Exit(1)
