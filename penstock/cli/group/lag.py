"""``penstock group lag``: tell how far reader groups are behind."""

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._output import JsonOption, duration, figure, print_json, print_rows, size
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

EXAMPLE = "penstock group lag dashboard"


def lag(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Their names; all groups if there are none.")
    ] = None,
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Tell how far reader groups are behind: events not read yet, their bytes, and how old the oldest of them is."""
    with existing_store(store) as opened:
        lags = {name: opened.reader_group(name).lag() for name in groups or opened.reader_groups()}
    if as_json:
        print_json([{"name": name, **asdict(one)} for name, one in lags.items()])
    else:
        rows = [(name, figure(one.events), size(one.bytes), duration(one.seconds)) for name, one in lags.items()]
        print_rows(("name", "events", "size", "age"), rows)
