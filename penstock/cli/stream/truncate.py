"""``penstock stream truncate``: remove the events before a position."""

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
        typer.Option(
            metavar="tail|CUT|TIME",
            help="The new head of the stream; TIME is milliseconds, a date, or an age like 10m.",
        ),
    ],
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Remove the events before a position and free their disk space."""
    with existing_store(store) as opened:
        info = opened.truncate_stream(name, parse_place(opened, name, "--at", at))
    print_change(info, f"begins at {info.head}", as_json=as_json)
