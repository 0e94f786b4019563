"""``penstock read``: print or save the events of a stream."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, progress
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from penstock.model import SegmentRange

EXAMPLE = "penstock read plant/readings --limit 3 --json"


def read(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="head|CUT|TIME", help="Where to start; TIME is milliseconds, a date, or an age like 10m."
        ),
    ] = "head",
    end: Annotated[str, typer.Option("--to", metavar="tail|CUT|TIME", help="Where to stop.")] = "tail",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N events.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file, replacing it if it exists; .parquet and .arrow files have columns.",
            dir_okay=False,
        ),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the events of a stream from one position to another, one line each, as bytes or as JSON.

    A line of JSON has an event of any size, with its key and headers, and write --json takes it. On a terminal and in
    columns, an event above 1 MiB is replaced by its position: penstock cat prints it.
    """
    from penstock.cli._events import EventPrinter, first_events
    from penstock.cli._save import COLUMN_FORMATS, save

    if as_json and output is not None and output.suffix in COLUMN_FORMATS:
        raise BadArgument(f"--json prints lines, but {output} has columns: leave one of them out")
    with existing_store(store) as opened:
        cuts = (
            parse_place(opened, stream, "--from", start),
            parse_place(opened, stream, "--to", end),
        )
        batches = first_events(opened.read(stream, *cuts), limit)
        if output is None:
            whole = not sys.stdout.isatty()
            printer = EventPrinter(sys.stdout.buffer, opened, stream, as_json=as_json, whole=whole)
            for batch in batches:
                printer.print(batch)
            return
        parts = opened.segment_ranges(stream, *cuts)
        with progress(f"reading {stream}", sum(part.size for part in parts)) as done:
            save(_counted(batches, parts, done), output, opened, stream, as_json=as_json)


def _counted(
    batches: "Iterator[pa.RecordBatch]", parts: "Iterable[SegmentRange]", done: "Callable[[int], object]"
) -> "Iterator[pa.RecordBatch]":
    """Yield the batches, and report progress by offsets: a batch does not contain its large events."""
    places = {part.segment_id: part.start for part in parts}
    for batch in batches:
        yield batch
        segment, place = batch.column("segment_id")[-1].as_py(), batch.column("offset")[-1].as_py()
        done(place - places[segment])
        places[segment] = place
