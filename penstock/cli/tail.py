"""``penstock tail``: print the last events of a stream, and new ones as they arrive."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.errors import BadArgument, DataTruncated

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from penstock import Store
    from penstock.model import StreamCut

EXAMPLE = "penstock tail plant/readings --from head --limit 3"

_LAST_DEFAULT = 10
_POLL_S = 0.1
_STEP_SIZE = 1 << 20  # bytes that are read before any of them is printed


def tail(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events until Ctrl-C.")] = False,
    last: Annotated[
        int | None, typer.Option("--last", "-n", min=0, help="Start with the last N events; 10 by default.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="head|tail|CUT|TIME",
            help="Start at a position instead; TIME is milliseconds, a date, or an age like 10m.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N events.")] = None,
    windows: Annotated[bool, typer.Option("--windows", help="Print the time window of each event.")] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the last ten events of a stream, one line each; with -f, also new events as they arrive.

    The segments of a stream have no order among each other, so each contributes an even share. For an event above
    1 MiB, size and pointer are printed. With --windows each line begins with the time window of its event: all events
    up to the first time come before it, and no writer had noted a time later than the second.
    """
    from penstock.cli._events import EventPrinter, first_events

    if start is not None and last is not None:
        raise BadArgument("--from and --last contradict each other: give one of them")
    with existing_store(store) as opened:
        printer = EventPrinter(sys.stdout.buffer, opened, stream, as_json=as_json, whole=False, windows=windows)
        end = opened.tail(stream)
        batches = _events(opened, end, start, _LAST_DEFAULT if last is None else last, follow=follow)
        for batch in first_events(batches, limit):
            printer.print(batch)


def _events(
    store: "Store", end: "StreamCut", start: str | None, last: int, *, follow: bool
) -> "Generator[pa.RecordBatch]":
    """Yield the events up to ``end``, then new events."""
    from penstock.cli._last import last_events

    if start is not None:
        yield from store.read(end.stream, parse_place(store, end.stream, "--from", start), end)
    else:
        yield from last_events(store, end.stream, end=end, count=last)
    if follow:
        yield from _follow(store, end)


def _follow(store: "Store", start: "StreamCut") -> "Generator[pa.RecordBatch]":
    """Yield the events after a cut as they arrive; stop when the stream is sealed and read.

    It looks for new events again and again. A reader group would be notified, but retention by consumption goes by the
    groups of a stream: to look at a stream must not change what is kept of it.
    """
    is_sealed = False
    while True:
        try:
            end = store.next_cut(start.stream, start, max_bytes=_STEP_SIZE).cut
            batches = list(store.read(start.stream, start, end)) if end != start else []
        except DataTruncated as error:
            typer.echo(f"penstock: {error}", err=True)
            start = store.next_cut(start.stream, start, start, skip_truncated=True).cut
            continue
        yield from batches
        if end != start:
            start = end
        elif is_sealed:
            return
        else:
            is_sealed = store.stream(start.stream).state == "sealed"
            if not is_sealed:
                time.sleep(_POLL_S)
