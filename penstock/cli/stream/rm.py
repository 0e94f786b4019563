"""``penstock stream rm``: delete a stream."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, fail, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.stream._info import NameArgument
from penstock.errors import StreamNotSealed

EXAMPLE = "penstock stream rm plant/readings --force"


def rm(
    name: NameArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Seal the stream first if it is not sealed.")] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete a sealed stream with all its events."""
    with existing_store(store) as opened:
        if force:
            opened.seal_stream(name)
        try:
            opened.delete_stream(name)
        except StreamNotSealed:
            fail(f"stream {name!r} is not sealed: seal it first, or use --force")
    if as_json:
        print_json({"name": name, "state": "deleted"})
    else:
        typer.echo(f"{name}: deleted")
