"""``penstock maintain``: run the maintenance of a store now."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

if TYPE_CHECKING:
    from penstock.model import StreamInfo

EXAMPLE = "penstock maintain"


def maintain(
    scope: Annotated[str | None, typer.Argument(metavar="SCOPE", help="List the streams of this scope only.")] = None,
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Run maintenance now: apply retention, scale, write watermarks, merge small files.

    A process that has the store open does this every second. If no process keeps it open, run this from cron.
    """
    with existing_store(store) as opened:
        opened.maintain()
        infos = opened.streams(scope)
    if as_json:
        print_json([as_dict(info) for info in infos])
    else:
        print_rows(("stream", "segments", "bytes", "head"), [tuple(map(str, as_dict(info).values())) for info in infos])


def as_dict(info: "StreamInfo") -> dict[str, object]:
    """Return the JSON object of a stream."""
    return {"name": info.name, "segments": len(info.segments), "size_bytes": info.size_bytes, "head": str(info.head)}
