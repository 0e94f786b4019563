"""What the commands for repositories share: a stream or a bundle to read, and how revisions look."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli._credentials import StoreCommand
from penstock.cli._output import count_of, fail, print_json
from penstock.cli._store import existing_store
from penstock.errors import MissingBasis, NoSuchKey, NoSuchStream, NotARepository, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from penstock import Store
    from penstock.repo import Key, Person, Repository, RepositoryContents, RevisionText, StreamCheck

__all__ = [
    "BundleArgument",
    "ContentsArgument",
    "ForceOption",
    "NameOption",
    "OtherArgument",
    "RepositoryArgument",
    "TwoStoresCommand",
    "as_dict",
    "is_bundle",
    "on_one_line",
    "opened_contents",
    "opened_repository",
    "printed",
    "report_check",
    "target_repository",
    "when",
]

RepositoryArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream of the repository: scope/name.")]
ContentsArgument = Annotated[
    str,
    typer.Argument(metavar="STREAM", help="The stream of the repository: scope/name; or a bundle: a file, https://…"),
]
BundleArgument = Annotated[str, typer.Argument(metavar="BUNDLE", help="The bundle: a file, https://… or s3://…")]
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
            try:
                yield bundle
            except (NoSuchKey, MissingBasis) as error:
                _fail_as_partial(name, error.key if isinstance(error, NoSuchKey) else error.basis)
    else:
        with existing_store(store) as opened:
            try:
                repository = opened_repository(opened, name)
            except NoSuchStream:
                fail(f"no bundle and no stream {name!r}: check the name")
            yield repository


def _fail_as_partial(name: str, key: Key) -> NoReturn:
    """Say what to do with a bundle that lacks what it builds on."""
    from penstock.repo import key_name

    revision = printed(key[-1])
    advice = f"pull it into a repository that has revision {revision}, and read that"
    fail(f"{name} does not have {key_name(key)}: it is a bundle of changes; {advice}")


def opened_repository(store: Store, name: str, *, create: bool = False) -> Repository:
    """Open the repository on a stream."""
    from penstock.repo import Repository

    try:
        return Repository.open(store, name, create=create)
    except NotARepository:
        fail(f"stream {name} is not a repository: name the stream of one, or a new one for penstock repo import")


@contextmanager
def target_repository(store: Store, name: str) -> Iterator[Repository]:
    """Open a repository to copy into, and create it if it does not exist; on failure, no empty one is left behind."""
    try:
        store.stream(name)
        is_new = False
    except NoSuchStream:
        is_new = True
    repository = opened_repository(store, name, create=True)
    try:
        yield repository
    except BaseException:
        with suppress(PenstockError):  # such as those of a server that is gone: what has failed is reported
            if is_new and not store.stream(name).size_bytes:
                store.seal_stream(name)
                store.delete_stream(name)
        raise


def when(person: Person) -> str:
    """Return the time at which a person did something: a date on a terminal, else seconds."""
    if sys.stdout.isatty():
        with suppress(OverflowError, OSError, ValueError):  # git takes times that no calendar has
            return datetime.fromtimestamp(person.time, UTC).isoformat().removesuffix("+00:00") + "Z"
    return str(person.time)


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


def on_one_line(name: bytes) -> str:
    """Return a name as it is printed in a line: control characters are written out, too."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in printed(name)
    )


def report_check(name: str, result: StreamCheck, *, as_json: bool) -> None:
    """Print what a check has found, and exit with 1 if something is wrong."""
    from penstock.repo import key_name

    missing, elsewhere = ([key_name(key) for key in keys] for keys in (result.missing, result.elsewhere))
    errors = [str(error) for error in result.errors]
    if as_json:
        found = {"items": result.items, "name_lists": result.name_lists, "missing": missing, "errors": errors}
        others = {"elsewhere": elsewhere, "unresolved": result.unresolved, "foreign_events": result.foreign_events}
        print_json(found | others)
    else:
        for line in [*errors, *(f"{key} is missing" for key in missing), *(f"builds on {key}" for key in elsewhere)]:
            typer.echo(line)
        summary = count_of(len(errors) + len(missing), "problem") if errors or missing else "all good"
        if elsewhere:
            needed = f"{count_of(len(elsewhere), 'item')} elsewhere"
            summary += f"; {count_of(result.unresolved, 'delta')} on {needed} not reconstructed"
        if result.foreign_events:
            summary += f"; {count_of(result.foreign_events, 'foreign event')} passed over"
        counts = f"{count_of(result.items, 'item')}, {count_of(result.name_lists, 'list')} of names"
        typer.echo(f"{name}: {counts}, {summary}")
    if not result.is_good:
        raise typer.Exit(1)
