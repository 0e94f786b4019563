"""``penstock top``: the streams of a store at a glance."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

if TYPE_CHECKING:
    from penstock.top import Overview, Query, Source

EXAMPLE = "penstock top --once --sort lag"

_RATES_S: Final = 1.0  # between two samples, which a rate is made of


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and exit; also without a terminal.")] = False,
    contains: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only streams whose names contain this text.")
    ] = "",
    sort: Annotated[
        Literal["name", "events", "bytes", "time", "lag", "transactions"],
        typer.Option("--sort", help="What the streams are sorted by."),
    ] = "name",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many streams --once prints.")] = 50,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the streams, every second: rates, how far watermarks and readers are behind, and what holds them back.

    On a server, you see the streams that you may read. Press ? for the keys.
    """
    from penstock.top import Query, run, source_of

    with existing_store(store) as opened:
        source = source_of(opened, store)
        query = Query(contains=contains, order=sort, limit=limit)
        if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            _print(_with_rates(source, query), as_json=as_json)
            return
        code = run(source, store, query)
    raise typer.Exit(code)


def _with_rates(source: "Source", query: "Query") -> "Overview":
    """Return figures with rates, which the owner has as soon as it was asked twice within some seconds."""
    overview = source.overview(query)
    if overview.rate is None:
        time.sleep(_RATES_S)
        overview = source.overview(query)
    return overview


def _print(overview: "Overview", *, as_json: bool) -> None:
    from msgspec import to_builtins

    from penstock.top import row_cells, table_columns

    if as_json:
        print_json(to_builtins(overview))
        return
    titles = [column.title for column in table_columns(10_000)]
    print_rows(titles, [row_cells(row) for row in overview.streams], unbroken=1)
