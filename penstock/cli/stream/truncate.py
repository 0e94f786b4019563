"""``penstock stream truncate``: drop the events before a place."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.cli.stream._info import NameArgument, print_change

EXAMPLE = "penstock stream truncate plant/readings --at tail"


def truncate(
    name: NameArgument,
    *,
    at: Annotated[
        str,
        typer.Option(metavar="tail|CUT|TIME", help="Where the stream is to begin; TIME is milliseconds or a date."),
    ],
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Remove the events before a place; their disk space is freed."""
    with existing_store(store) as opened:
        info = opened.truncate_stream(name, parse_place(opened, name, "--at", at))
    print_change(info, f"begins at {info.head}", as_json=as_json)
