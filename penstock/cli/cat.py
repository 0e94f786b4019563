"""``penstock cat``: print one event."""

import sys
from typing import Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

EXAMPLE = "penstock cat plant/readings:0@64"


def cat(
    pointer: Annotated[
        str, typer.Argument(metavar="POINTER", help="The position of the event: scope/name:segment@offset.")
    ],
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the event at a pointer, of any size, byte for byte; with --json as a line that write --json takes."""
    from penstock.cli._events import print_whole
    from penstock.cli._json_events import streamed_json_line
    from penstock.model import EventPointer

    place = EventPointer.parse(pointer)
    with existing_store(store) as opened:
        if as_json:
            with opened.fetch_event_as_stream(place) as event:
                sys.stdout.buffer.writelines(streamed_json_line(event))
        else:
            print_whole(opened, place, sys.stdout.buffer)
    sys.stdout.buffer.flush()
