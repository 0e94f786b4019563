"""``penstock copy``: copy streams from one store to another."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._credentials import StoreCommand
from penstock.cli._output import JsonOption, copy_progress, count_of, print_json
from penstock.cli._store import existing_store, new_store
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.copying import CopyReport

EXAMPLE = "penstock copy ./penstock-data ./backup"


class CopyCommand(StoreCommand):
    """A command with two stores, each of which may be on a server."""

    def names_server(self, context: typer.Context) -> bool:
        """Whether one of the stores is on a server."""
        return any("://" in context.params[name] for name in ("source", "target"))


COMMAND = CopyCommand


def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The store to copy: a folder, or penstock://host:port.")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="The store to copy to; a folder is made if needed.")],
    streams: Annotated[
        list[str] | None, typer.Argument(metavar="[STREAM]...", help="The streams: scope/name; all by default.")
    ] = None,
    *,
    cut: Annotated[
        str | None, typer.Option(metavar="CUT", help="Copy nothing: print where a cut of a copied stream is in TO.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy streams to another store: events, the order of keys, watermarks, configuration, positions of readers.

    Each stream is copied up to the tail that it has when its copy begins, and checksums are compared at the end. A copy
    that was interrupted goes on where it was, and one whose source has grown is continued: run the command again.
    """
    from penstock.copying import copy_streams, translate_cut
    from penstock.model import StreamCut

    if cut is not None and streams:
        raise BadArgument("--cut names its stream: leave out STREAM")
    source_cut = None if cut is None else StreamCut.parse(cut)
    if _are_one_store(source, target):
        raise BadArgument(f"FROM and TO are the same store, {target}: name another one to copy to")
    with ExitStack() as stores:
        ours = stores.enter_context(existing_store(source, named_by="FROM"))
        for name in streams or ():
            ours.stream(name)  # before a folder is made for nothing
        if source_cut is not None:
            theirs = stores.enter_context(existing_store(target, named_by="TO"))
            place = str(translate_cut(ours, theirs, source_cut))
            print_json({"cut": cut, "target_cut": place}) if as_json else typer.echo(place)
            return
        theirs = stores.enter_context(new_store(target))
        with copy_progress() as on_progress:
            result = copy_streams(ours, theirs, streams or None, on_progress=on_progress)
    if as_json:
        print_json(_as_dict(result))
        return
    for stream in result.streams:
        counts = count_of(stream.events, "event"), count_of(stream.watermarks, "watermark")
        typer.echo(f"{stream.name}: {', '.join(counts)} copied, complete up to {stream.end}")
    for repository in result.repositories:
        typer.echo(f"{repository.name}: {count_of(repository.revisions, 'new revision')}")
    for group in result.groups:
        typer.echo(f"group {group}: goes on where it was")
    for group in result.kept_groups:
        typer.echo(f"penstock: {target} has a group {group} already, which stays where it is", err=True)


def _are_one_store(source: str, target: str) -> bool:
    """Whether two addresses name one folder, or the same server."""
    if "://" in source and "://" in target:
        return bool(_servers(source) & _servers(target))
    try:
        return "://" not in source + target and Path(source).samefile(target)
    except OSError:  # one of them does not exist
        return False


def _servers(address: str) -> set[str]:
    return set(address.partition("://")[2].lower().split(","))


def _as_dict(result: "CopyReport") -> dict[str, object]:
    return {
        "streams": [
            {
                "name": stream.name,
                "events": stream.events,
                "size_bytes": stream.size_bytes,
                "watermarks": stream.watermarks,
                "end": str(stream.end),
                "target_end": str(stream.target_end),
            }
            for stream in result.streams
        ],
        "repositories": [
            {"name": repository.name, "revisions": repository.revisions, "items": repository.items}
            for repository in result.repositories
        ],
        "groups": list(result.groups),
        "kept_groups": list(result.kept_groups),
    }
