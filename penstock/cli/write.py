"""``penstock write``: write lines, or whole files, as events."""

import io
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._input import EventFeed, write_json, write_lines, write_whole
from penstock.cli._output import count_of, fail, print_json, progress
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.errors import BadArgument
from penstock.model import check_append_time, check_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXAMPLE = "penstock write plant/readings readings.txt --key sensor-7"

_STDIN = Path("-")


def write(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            dir_okay=False,
            help="Files whose lines are events; - is the standard input, the default.",
            show_default=False,
        ),
    ] = None,
    *,
    whole: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            metavar="PATH",
            dir_okay=False,
            help="A file, of any size, that becomes one event; - is the standard input.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The routing key: events with one key stay in order.")] = None,
    writer_id: Annotated[
        str | None, typer.Option(help="The id of the writer; fences an older writer with the same id.")
    ] = None,
    note_time: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            help="Note, for --writer-id, that all its events up to this time (milliseconds since 1970) are written.",
        ),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Read lines of JSON, as read --json prints them; print JSON.")
    ] = False,
) -> None:
    """Write events to a stream: the lines of the standard input or of files, or whole files with --file.

    The command ends when all events are durable, and prints their number, and the pointer of a single one. With --json
    a line is an event of any size with its key and headers, as read --json prints it; an event without a key gets that
    of --key. In a line above 16 MiB, key and headers must come before the event, as read --json prints them.
    """
    if files and whole:
        raise BadArgument("FILE and --file contradict each other: FILE has lines, --file is one event")
    if note_time is not None:
        check_time("--note-time", note_time)
        check_append_time("--note-time", note_time)
        if writer_id is None:
            raise BadArgument("--note-time needs --writer-id: a time belongs to a writer")
    with existing_store(store) as opened, opened.writer(stream, writer_id) as writer:
        with EventFeed(writer, key) as events:
            write_file = write_whole if whole else write_json if as_json else write_lines
            _write_all(events, whole or files or [_STDIN], write_file)
            if note_time is not None:
                writer.note_time(note_time)
            writer.flush()
        pointer = events.pointer
    if as_json:
        print_json({"stream": stream, "events": events.count, "pointer": pointer})
    else:
        typer.echo(f"{count_of(events.count, 'event')} written" + (f": {pointer}" if pointer else ""))


def _write_all(
    events: EventFeed,
    files: "Sequence[Path]",
    write_file: "Callable[[io.BufferedIOBase, EventFeed, Callable[[int], object]], None]",
) -> None:
    try:
        total = sum(path.stat().st_size for path in files if path != _STDIN)
    except FileNotFoundError as error:
        advice = "arguments are files of events; pipe a text, as in echo TEXT | penstock write STREAM"
        fail(f"no file {error.filename}: {advice}")
    with progress("writing", total) as done:
        for path in files:
            with nullcontext(_stdin()) if path == _STDIN else path.open("rb") as file:
                write_file(file, events, done)


def _stdin() -> "io.BufferedIOBase":
    stdin = sys.stdin.buffer
    assert isinstance(stdin, io.BufferedIOBase), "it is, unless it was replaced"
    return stdin
