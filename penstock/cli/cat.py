"""``penstock cat``: print one event."""

import sys
from typing import Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

EXAMPLE = "penstock cat plant/readings:0@56"


def cat(
    pointer: Annotated[str, typer.Argument(metavar="POINTER", help="Where it is: scope/name:segment@offset.")],
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the event that a pointer points to, byte for byte."""
    from penstock.cli._events import as_json_line
    from penstock.model import EventPointer

    place = EventPointer.parse(pointer)
    with existing_store(store) as opened:
        event = opened.fetch_event(place)
    sys.stdout.buffer.write(as_json_line(place, event) if as_json else event)
    sys.stdout.buffer.flush()
