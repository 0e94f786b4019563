"""``penstock event poll``: print the next events of a FutoIn event stream."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.event._target import (
    EventCommand,
    StreamArgument,
    WantOption,
    check_options,
    consumer_name,
    is_address,
    print_events,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock import Store
    from penstock.events import Event, StoreEvents, WireEvent

COMMAND = EventCommand
EXAMPLE = "penstock event poll shop/orders --want ORDER_PAID"


def poll(
    stream: StreamArgument,
    *,
    after: Annotated[
        int | None,
        typer.Option(min=1, max=10**18 - 1, metavar="ID", help="Print the events behind this one.", show_default=False),
    ] = None,
    component: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Poll as this registered component; --after acknowledges.", show_default=False
        ),
    ] = None,
    want: WantOption = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the next events, at most 1,000: a line each with id, type, time and data.

    By default these are the oldest that are kept. A component is registered if it is not: events are kept until it has
    acknowledged them, and without --after it gets those that it has not acknowledged.
    """
    events: Sequence[Event | WireEvent]
    check_options(component, want)
    if is_address(stream):
        events = _ask(stream, component, after, want)
    else:
        with existing_store(store) as opened:
            name = None if component is None else consumer_name(store, stream, component)
            events = _read(opened, stream, name, after, want)
    print_events(events, as_json=as_json)


def _read(
    store: "Store", stream: str, name: str | None, after: int | None, want: list[str] | None
) -> "list[WireEvent]":
    from penstock.events import StoreEvents
    from penstock.model import StreamCut

    log = StoreEvents(store, stream)
    if name is None:
        return _next_wanted(log, after or 0, want)[0]
    known = store.consumers(stream).get(name)
    position = 0 if known is None else known.offsets.get(0, 0)
    first = min(max(after or 0, position), log.tail().offsets[0])
    events, end = _next_wanted(log, first, want)
    delivered = log.page(first, events_max=0).end if events else end
    if known is None or delivered > position:
        store.register_consumer(stream, name, StreamCut.of(stream, {0: delivered}))
    return events


def _next_wanted(log: "StoreEvents", after: int, want: list[str] | None) -> "tuple[list[WireEvent], int]":
    """Return the next events of the types that are wanted, and how far the stream was read."""
    while True:
        page = log.page(after)
        events = wanted(page.events, want)
        if events or page.end <= after:
            return events, max(page.end, after)
        after = page.end


def _ask(url: str, component: str | None, after: int | None, want: list[str] | None) -> "list[Event]":
    import asyncio

    from penstock.cli._credentials import futoin_credentials, in_futoin_options
    from penstock.events import LIVE, PollClient

    async def call() -> "list[Event]":
        async with PollClient(url, component or LIVE, want=want, **futoin_credentials()) as client:
            if component is not None:
                await client.register()
            return await client.poll(after)

    with in_futoin_options():
        return asyncio.run(call())
