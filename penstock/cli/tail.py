"""``penstock tail``: print the last events of a stream, and new ones as they arrive."""

import re
import secrets
import signal
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.errors import BadArgument, DataTruncated, EventTooLarge

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pyarrow as pa

    from penstock import Store
    from penstock.model import StreamCut
    from penstock.stream import Reader

EXAMPLE = "penstock tail plant/readings --from head --limit 3"

_LAST_DEFAULT = 10
_GROUP_PREFIX = "penstock-tail-"
_LEFTOVER_AFTER_MS = 3_600_000  # far above the time between the creation of a group and its reader, and any clock skew


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
        with _signals_as_ctrl_c(), closing(batches):
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

    A reader group is woken as soon as there are events; this one belongs to this command and is deleted with it.
    """
    now_ms = time.time_ns() // 1_000_000
    _delete_leftovers(store, before_ms=now_ms - _LEFTOVER_AFTER_MS)
    name = f"{_GROUP_PREFIX}{now_ms}-{secrets.token_hex(8)}"
    try:
        with store.create_reader_group(name, [start.stream], start=start).reader("tail") as reader:
            while (batch := _next_batch(store, reader)) is not None:
                yield batch
    finally:
        if name in store.reader_groups():  # Ctrl-C may come at any moment, also before the group exists
            store.reader_group(name).delete()


def _delete_leftovers(store: "Store", *, before_ms: int) -> None:
    """Delete groups that commands killed with kill -9 left behind: retention by consumption would wait for them.

    A group without a reader may also be that of a command that has just begun, so its name says when it was created.
    """
    for name in store.reader_groups():
        created = re.fullmatch(rf"{_GROUP_PREFIX}(\d+)-[0-9a-f]+", name)
        if created and int(created[1]) < before_ms and not store.reader_group(name).readers():
            store.reader_group(name).delete()


def _next_batch(store: "Store", reader: "Reader") -> "pa.RecordBatch | None":
    """Return the next batch; report events that were truncated, and continue after them.

    A large event is a batch of its own.
    """
    while True:
        try:
            return reader.read_batch()
        except EventTooLarge as error:
            return _large_event(store, error)
        except DataTruncated as error:
            typer.echo(f"penstock: {error}", err=True)


def _large_event(store: "Store", error: EventTooLarge) -> "pa.RecordBatch":
    """Return an event that is too large as ``store.read`` does: as null, with its position."""
    import pyarrow as pa

    from penstock.model import EventPointer
    from penstock.stream import READ_SCHEMA

    pointer = error.pointer
    assert isinstance(pointer, EventPointer), "readers set it"
    event = store.fetch_event_as_stream(pointer)
    row = [None, event.key, event.timestamp, event.header_pairs or None, pointer.segment_id, pointer.offset, None]
    arrays = [pa.array([value], field.type) for value, field in zip(row, READ_SCHEMA, strict=True)]
    return pa.record_batch(arrays, READ_SCHEMA)


@contextmanager
def _signals_as_ctrl_c() -> "Iterator[None]":
    """Treat SIGHUP and SIGTERM like Ctrl-C, so that no reader group is left behind.

    Signals that are ignored stay ignored: SIGHUP under nohup, Ctrl-C in the background of a script.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN

    def end(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.raise_signal(signal.SIGINT)  # not directly: the store may be in a step that must not be interrupted

    def interrupt(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: end, signal.SIGHUP: end}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
