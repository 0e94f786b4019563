"""What the commands for FutoIn events share: a stream of a store, or the address of any server of FutoIn."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._credentials import StoreCommand, calling_user
from penstock.cli._options import option_names
from penstock.errors import BadArgument
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.events import Event, WireEvent

__all__ = [
    "EventCommand",
    "StreamArgument",
    "WantOption",
    "check_options",
    "consumer_name",
    "is_address",
    "print_events",
    "refuse_address",
    "wanted",
]

StreamArgument = Annotated[
    str,
    typer.Argument(metavar="STREAM", help="The stream: scope/name, or ws://host:port/… of a FutoIn server."),
]
WantOption = Annotated[
    list[str] | None, typer.Option("--want", metavar="TYPE", help="Only events of this type; may be repeated.")
]


class EventCommand(StoreCommand):
    """A command whose stream may be an address."""

    def names_server(self, context: typer.Context) -> bool:
        """Whether the stream or the store is on a server."""
        return is_address(context.params["stream"]) or super().names_server(context)


def is_address(stream: str) -> bool:
    """Whether a stream is the address of a FutoIn server."""
    return "://" in stream


def refuse_address(stream: str) -> None:
    """Refuse an address where a stream of a store is meant: FutoIn has no call for what the command does."""
    if is_address(stream):
        raise BadArgument(
            f"invalid STREAM {shown(stream)}: use scope/name, and name the server with --store penstock://…"
        )


def check_options(component: str | None, want: list[str] | None) -> None:
    """Refuse a component and types of events that FutoIn does not permit."""
    from penstock.events import LIVE, checked_component, checked_want

    with option_names(component="--component", want="--want"):
        checked_want(want)
        if component is not None:
            checked_component(component)
    if component == LIVE:
        raise BadArgument("LIVE is the component of live delivery: leave out --component")


def consumer_name(store: str, stream: str, component: str) -> str:
    """Return the name of the stream's consumer for a component of the user, as a server names it."""
    from penstock.events import Consumer

    user = "anonymous"
    if "://" in store:
        user = calling_user() or user
        if os.environ.get("PENSTOCK_TOKEN"):
            raise BadArgument("a token does not say whose --component this is: use --user instead of PENSTOCK_TOKEN")
    return Consumer(stream, user, component, None).name


def wanted(events: Sequence[WireEvent], want: list[str] | None) -> list[WireEvent]:
    """Return the events of these types; all of them without types."""
    return list(events) if want is None else [event for event in events if event.type in want]


def print_events(events: Iterable[Event | WireEvent], *, as_json: bool) -> None:
    """Print each event as a line: JSON, or its id, type, time and data with tabs between them."""
    from msgspec.json import encode

    for event in events:
        if as_json:
            sys.stdout.buffer.write(encode(event) + b"\n")
        else:
            heading = f"{event.id}\t{event.type}\t{event.ts}\t".encode()
            sys.stdout.buffer.write(heading + encode(event.data) + b"\n")
    sys.stdout.buffer.flush()
