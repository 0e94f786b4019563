"""``penstock event receive``: print the events of a FutoIn event stream as they come."""

import time
from pathlib import Path
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
from penstock.errors import BadArgument, FutoinError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock import Store
    from penstock.events import Event, PositionFile, WireEvent

COMMAND = EventCommand
EXAMPLE = "penstock event receive shop/orders --component billing --limit 1"

_POLL_S = 0.1


def receive(
    stream: StreamArgument,
    *,
    component: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Receive all events, as this registered component.", show_default=False),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Receive new events only, and miss some under load.")] = False,
    position: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="A file with the last printed id: none is printed twice.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after N events, at the end of the group in which they came.")
    ] = None,
    want: WantOption = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print events as they come, until Ctrl-C: a line each with id, type, time and data.

    A component is registered if it is not: events are kept until it has got them, and it goes on where it was. After a
    crash, the last events may be printed again, unless a --position file is kept.
    """
    from penstock.events import PositionFile

    if live == (component is not None):
        raise BadArgument("name a --component to receive all events, or receive --live")
    if live and position is not None:
        raise BadArgument("--live and --position contradict each other: live delivery has no position")
    check_options(component, want)
    printer = _Printer(limit, as_json=as_json)
    kept = None if position is None else PositionFile(position)
    if is_address(stream):
        _listen(stream, component, kept, want, printer)
    else:
        with existing_store(store) as opened:
            name = None if component is None else consumer_name(store, stream, component)
            _follow(opened, stream, name, kept=kept, want=want, printer=printer)


class _Printer:
    """Prints events up to a limit."""

    def __init__(self, limit: int | None, *, as_json: bool) -> None:
        self._left, self._as_json = limit, as_json

    @property
    def is_done(self) -> bool:
        """Whether as many events are printed as were wanted."""
        return self._left is not None and self._left <= 0

    def print(self, events: "Sequence[Event | WireEvent]") -> None:
        """Print a group of events."""
        print_events(events, as_json=self._as_json)
        if self._left is not None:
            self._left -= len(events)


def _follow(
    store: "Store",
    stream: str,
    name: str | None,
    *,
    kept: "PositionFile | None",
    want: list[str] | None,
    printer: _Printer,
) -> None:
    """Print the events of a store; stop when the stream is sealed and read."""
    from penstock.events import StoreEvents
    from penstock.model import StreamCut

    log, is_sealed = StoreEvents(store, stream), False
    place = tail = log.tail().offsets[0]
    stored = 0 if kept is None else kept.load()
    if stored > tail:
        raise BadArgument(f"the --position {stored} is behind the end of {stream}: the file is of another stream")
    if name is not None:
        known = store.consumers(stream).get(name)
        place = 0 if known is None else known.offsets.get(0, 0)
        if known is None:
            store.register_consumer(stream, name)
    place = max(place, stored)
    while not printer.is_done:
        page = log.page(place)
        events = wanted(page.events, want)
        printer.print(events)
        if page.end > place:
            if events and kept is not None:
                kept.store(int(events[-1].id))
            if name is not None:
                store.register_consumer(stream, name, StreamCut.of(stream, {0: page.end}))
            place = page.end
        elif is_sealed:
            return
        else:
            is_sealed = store.stream(stream).state == "sealed"
            time.sleep(0 if is_sealed else _POLL_S)


def _listen(
    url: str, component: str | None, kept: "PositionFile | None", want: list[str] | None, printer: _Printer
) -> None:
    """Print the events that a server pushes."""
    import asyncio
    from contextlib import suppress

    from penstock.cli._credentials import futoin_credentials, in_futoin_options
    from penstock.events import LIVE, LiveReceiver, PollClient, ReliableReceiver

    credentials = futoin_credentials()

    async def call() -> None:
        async with PollClient(url, component or LIVE, **credentials) as client:
            await client.ping()  # a wrong address is an error now; later it is waited for
        receiver: LiveReceiver | ReliableReceiver
        if component is None:
            receiver = LiveReceiver(url, handle, want=want, **credentials)
        else:
            receiver = ReliableReceiver(url, component, handle, position=kept, want=want, **credentials)
        running = asyncio.create_task(receiver.run())
        ended = asyncio.create_task(done.wait())
        await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        if failures:
            raise failures[0]

    def handle(events: "list[Event]") -> None:
        if done.is_set():
            raise FutoinError("InternalError", "the receiver ends")  # so that the events count as not delivered
        try:
            printer.print(events)
        except OSError as error:
            failures.append(error)
            done.set()
            raise FutoinError("InternalError", "the events could not be printed") from None
        if printer.is_done:
            done.set()

    done, failures = asyncio.Event(), list[OSError]()
    with in_futoin_options():
        asyncio.run(call())
