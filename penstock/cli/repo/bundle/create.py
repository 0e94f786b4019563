"""``penstock repo bundle create``: write revisions into a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._output import JsonOption, count_of, print_json
from penstock.cli._output_file import is_standard_output
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, opened_contents
from penstock.cli.repo._places import read_revision

EXAMPLE = "penstock repo bundle create code/project project.bundle"


def create(
    stream: ContentsArgument,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The bundle to write. An existing file is replaced when it is complete."),
    ],
    *,
    revision: Annotated[
        list[str] | None,
        typer.Option(metavar="REV", help="With this revision and its ancestors; may be repeated. Default: all."),
    ] = None,
    known: Annotated[
        list[str] | None,
        typer.Option(metavar="REV", help="Without this revision and its ancestors; may be repeated."),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Write the revisions of a repository into a file, from which any of them can be read or pulled.

    It has the branches and tags whose revisions are in it.
    """
    from penstock.repo import Between, Bundle, Everything, key_name

    prints = is_standard_output(file)
    target = sys.stdout.buffer if prints else file
    with opened_contents(stream, store) as contents:
        if revision or known:
            heads = [read_revision(contents, name) for name in revision or ()] or contents.heads()
            search = Between(heads, [read_revision(contents, name) for name in known or ()])
            result = Bundle.write(target, contents.get_repository_stream(search), refs=contents.refs())
        else:
            result = Bundle.write(target, contents.get_repository_stream(Everything()))
    if prints:
        return
    if as_json:
        missing = [key_name(key) for key in result.missing]
        print_json({"bundle": str(file), "items": result.items, "missing": missing})
    else:
        needs = f", builds on {count_of(len(result.missing), 'other item')}" if result.missing else ""
        typer.echo(f"{file}: {count_of(result.items, 'item')}{needs}")
