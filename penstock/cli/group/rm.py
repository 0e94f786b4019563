"""``penstock group rm``: delete a reader group."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

EXAMPLE = "penstock group rm dashboard"


def rm(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")],
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete a reader group: its readers end and its position is lost. The streams stay."""
    with existing_store(store) as opened:
        opened.reader_group(name).delete()
    if as_json:
        print_json({"name": name, "state": "deleted"})
    else:
        typer.echo(f"{name}: deleted")
