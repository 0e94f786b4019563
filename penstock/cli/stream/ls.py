"""``penstock stream ls``: list the streams."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, figure, print_json, print_rows, size
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.stream._info import as_dict

EXAMPLE = "penstock stream ls plant"


def ls(
    scope: Annotated[str | None, typer.Argument(metavar="SCOPE", help="List only the streams of this scope.")] = None,
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the streams: name, state, number of segments, number of events, size."""
    with existing_store(store) as opened:
        infos = opened.streams(scope)
    if as_json:
        print_json([as_dict(info) for info in infos])
    else:
        rows = [
            (info.name, info.state, str(len(info.segments)), figure(info.events), size(info.size_bytes))
            for info in infos
        ]
        print_rows(("name", "state", "segments", "events", "size"), rows)
