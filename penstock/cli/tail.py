"""``penstock tail``: print the last events of a stream, and go on as they arrive."""

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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what arrives, until Ctrl-C.")] = False,
    last: Annotated[
        int | None, typer.Option("--last", "-n", min=0, help="Begin with the last N events; 10 by default.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="head|tail|CUT|TIME",
            help="Begin there instead of with the last events; TIME is milliseconds or a date.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="End after N events.")] = None,
    windows: Annotated[bool, typer.Option("--windows", help="Print between which times each event is.")] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the last ten events of a stream, a line each; with -f, also those that arrive from now on.

    The segments of a stream have no order between them: of one that has several, each gives an even share. Of an event
    above 1 MiB, size and pointer are printed. With --windows each line begins with two times: everything up to the
    first was written before the event, and no writer had come to more than the second.
    """
    from penstock.cli._events import EventPrinter, first_events

    if start is not None and last is not None:
        raise BadArgument("--from and --last both say where to begin: give one of them")
    with existing_store(store) as opened:
        printer = EventPrinter(sys.stdout.buffer, opened, stream, as_json=as_json, whole=False, windows=windows)
        end = opened.tail(stream)
        batches = _events(opened, end, start, _LAST_DEFAULT if last is None else last, follow=follow)
        with _every_end_is_ctrl_c(), closing(batches):
            for batch in first_events(batches, limit):
                printer.print(batch)


def _events(
    store: "Store", end: "StreamCut", start: str | None, last: int, *, follow: bool
) -> "Generator[pa.RecordBatch]":
    """Return what is there up to ``end``, then what arrives."""
    from penstock.cli._last import last_events

    if start is not None:
        yield from store.read(end.stream, parse_place(store, end.stream, "--from", start), end)
    else:
        yield from last_events(store, end.stream, end=end, count=last)
    if follow:
        yield from _follow(store, end)


def _follow(store: "Store", start: "StreamCut") -> "Generator[pa.RecordBatch]":
    """Return what arrives behind a cut; ends when the stream is sealed and read.

    A reader group wakes as soon as there is something; this one is only ours, and gone when we are.
    """
    now_ms = time.time_ns() // 1_000_000
    _delete_leftovers(store, before_ms=now_ms - _LEFTOVER_AFTER_MS)
    name = f"{_GROUP_PREFIX}{now_ms}-{secrets.token_hex(8)}"
    try:
        with store.create_reader_group(name, [start.stream], start=start).reader("tail") as reader:
            while (batch := _next_batch(store, reader)) is not None:
                yield batch
    finally:
        if name in store.reader_groups():  # Ctrl-C may come in any moment, also before there is a group
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
    """Return the next batch; what cannot be read any more is told, and the reader goes on behind it.

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
    """Return an event that is too large as ``store.read`` does: as null, with the place where it is."""
    import pyarrow as pa

    from penstock.model import EventPointer
    from penstock.stream import READ_SCHEMA

    pointer = error.pointer
    assert isinstance(pointer, EventPointer), "a reader tells where"
    event = store.fetch_event_as_stream(pointer)
    row = [None, event.key, event.timestamp, event.header_pairs or None, pointer.segment_id, pointer.offset, None]
    arrays = [pa.array([value], field.type) for value, field in zip(row, READ_SCHEMA, strict=True)]
    return pa.record_batch(arrays, READ_SCHEMA)


@contextmanager
def _every_end_is_ctrl_c() -> "Iterator[None]":
    """Let a closed terminal, or a polite kill, end us as Ctrl-C does: without leaving a reader group behind.

    What is ignored stays so: closed terminals under nohup, Ctrl-C in the background of a script.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN

    def end(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.raise_signal(signal.SIGINT)  # not at once: the store may be within a step that must not be broken off

    def interrupt(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: end, signal.SIGHUP: end}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
