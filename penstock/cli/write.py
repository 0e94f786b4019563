"""``penstock write``: write lines, or whole files, as events."""

import io
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._events import lines_of
from penstock.cli._output import JsonOption, count_of, fail, print_json, progress
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.errors import BadArgument, EventTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.stream import BatchAck, StreamWriter

EXAMPLE = "penstock write plant/readings readings.txt --key sensor-7"

_STDIN = Path("-")


def write(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Its name: scope/name.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            dir_okay=False,
            help="Each line of these is an event; by default, and for -, of the standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    whole: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="PATH", exists=True, dir_okay=False, help="The whole file is one event."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The routing key: events of one key stay in order.")] = None,
    writer_id: Annotated[
        str | None, typer.Option(help="The writer's name: an older writer of that name writes no more.")
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Write events to a stream: the lines of the standard input or of files, or whole files with --file.

    Ends when all of them are durable, and tells how many there were; of a single one also the pointer.
    """
    if files and whole:
        raise BadArgument("FILE is for lines and --file for whole files: give one kind of them")
    with existing_store(store) as opened, opened.writer(stream, writer_id) as writer:
        written = _Written(writer, key)
        try:
            _write_all(written, files or [], whole or [])
        except EventTooLarge as error:
            writer.flush()
            fail(f"event {written.count + 1} has more than {error.limit} bytes, the limit; those before it are written")
        writer.flush()
        pointer = written.pointer
    if as_json:
        print_json({"stream": stream, "events": written.count, "pointer": pointer})
    else:
        typer.echo(f"{count_of(written.count, 'event')} written" + (f": {pointer}" if pointer else ""))


class _Written:
    """What was given to a writer so far."""

    def __init__(self, writer: "StreamWriter", key: str | None) -> None:
        self._writer, self._key = writer, key
        self._last: BatchAck | None = None
        self.count = 0

    def add(self, events: "Sequence[bytes]") -> None:
        """Write events; waits while too many are under way."""
        keys = None if self._key is None else [os.fsencode(self._key)] * len(events)
        self._last = self._writer.write_batch(events, keys)
        self.count += len(events)

    @property
    def pointer(self) -> str | None:
        """Where the event is, if it is just one."""
        return str(self._last.result()[0]) if self._last is not None and self.count == 1 else None


def _write_all(written: _Written, files: "Sequence[Path]", whole: "Sequence[Path]") -> None:
    total = sum(path.stat().st_size for path in (*files, *whole) if path != _STDIN)
    with progress("writing", total) as done:
        for events in _whole_files(whole) if whole else _lines(files or [_STDIN]):
            written.add(events)
            done(sum(map(len, events)) + len(events))


def _lines(files: "Sequence[Path]") -> "Iterator[list[bytes]]":
    from penstock.stream import EVENT_SIZE_MAX

    for path in files:
        with nullcontext(_stdin()) if path == _STDIN else path.open("rb") as file:
            yield from lines_of(file, limit=EVENT_SIZE_MAX)


def _stdin() -> "io.BufferedIOBase":
    stdin = sys.stdin.buffer
    assert isinstance(stdin, io.BufferedIOBase), "so it is, unless somebody replaced it"
    return stdin


def _whole_files(files: "Sequence[Path]") -> "Iterator[list[bytes]]":
    from penstock.stream import EVENT_SIZE_MAX

    for path in files:
        with path.open("rb") as file:
            event = file.read(EVENT_SIZE_MAX + 1)
        if len(event) > EVENT_SIZE_MAX:
            raise EventTooLarge(size=path.stat().st_size, limit=EVENT_SIZE_MAX)
        yield [event]
