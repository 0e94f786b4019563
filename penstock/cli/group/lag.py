"""``penstock group lag``: print how far reader groups are behind."""

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli._output import JsonOption, duration, figure, print_json, print_rows, size
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

EXAMPLE = "penstock group lag dashboard"


def lag(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="The names of the groups; all groups by default.")
    ] = None,
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the lag of reader groups: events not read yet, their bytes, and the age of the oldest one."""
    with existing_store(store) as opened:
        lags = {name: opened.reader_group(name).lag() for name in groups or opened.reader_groups()}
    if as_json:
        print_json([{"name": name, **asdict(behind)} for name, behind in lags.items()])
    else:
        rows = [
            (name, figure(behind.events), size(behind.bytes), duration(behind.seconds)) for name, behind in lags.items()
        ]
        print_rows(("name", "events", "size", "age"), rows)
