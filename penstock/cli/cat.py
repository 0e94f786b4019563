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
    """Print the event that a pointer points to, of any size, byte for byte."""
    from penstock.cli._events import as_json_line, print_whole
    from penstock.model import EventPointer
    from penstock.stream import EVENT_SIZE_MAX

    place = EventPointer.parse(pointer)
    with existing_store(store) as opened:
        if as_json:
            with opened.fetch_event_as_stream(place) as event:
                small = event.read() if event.size <= EVENT_SIZE_MAX else None
            sys.stdout.buffer.write(as_json_line(place, small, opened))
        else:
            print_whole(opened, place, sys.stdout.buffer)
    sys.stdout.buffer.flush()
