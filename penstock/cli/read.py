"""``penstock read``: print or save what a stream holds."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, progress
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

EXAMPLE = "penstock read plant/readings --limit 3 --json"


def read(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Its name: scope/name.")],
    *,
    start: Annotated[str, typer.Option("--from", metavar="head|CUT", help="Where to begin.")] = "head",
    end: Annotated[str, typer.Option("--to", metavar="tail|CUT", help="Where to end.")] = "tail",
    limit: Annotated[int | None, typer.Option(min=1, help="End after N events.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to this file; .parquet and .arrow get columns.", dir_okay=False),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the events of a stream from one place to another, a line each, as they are or as JSON."""
    from penstock.cli._events import EventPrinter, first_events
    from penstock.cli._save import COLUMN_FORMATS, save

    if as_json and output is not None and output.suffix in COLUMN_FORMATS:
        raise BadArgument(f"--json is for lines, {output} gets columns: leave one of them out")
    with existing_store(store) as opened:
        cuts = parse_place(opened, stream, start), parse_place(opened, stream, end)
        batches = first_events(opened.read(stream, *cuts), limit)
        if output is None:
            printer = EventPrinter(sys.stdout.buffer, stream, as_json=as_json)
            for batch in batches:
                printer.print(batch)
            return
        total = sum(part.size for part in opened.segment_ranges(stream, *cuts))
        with progress(f"reading {stream}", total) as done:
            save(_counted(batches, done), output, stream, as_json=as_json)


def _counted(batches: "Iterator[pa.RecordBatch]", done: "Callable[[int], object]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        yield batch
        done(batch.column("event").nbytes)
