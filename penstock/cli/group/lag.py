"""``penstock group lag``: tell how far reader groups are behind."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, duration, print_json, print_rows, size
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
    """Tell how far reader groups are behind: bytes not read yet, and for how long the oldest of them has been there."""
    with existing_store(store) as opened:
        lags = {name: opened.reader_group(name).lag() for name in groups or opened.reader_groups()}
    if as_json:
        print_json([{"name": name, "bytes": one.bytes, "seconds": one.seconds} for name, one in lags.items()])
    else:
        rows = [(name, size(one.bytes), duration(one.seconds)) for name, one in lags.items()]
        print_rows(("name", "bytes", "time"), rows)
