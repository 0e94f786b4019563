"""``penstock maintain``: do now what the configuration of streams asks for."""

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
    """Do what is due: remove what retention no longer keeps, scale, write watermarks, merge small files.

    A store that a process has open does this by itself, every second. Where processes come and go, let cron run it.
    """
    with existing_store(store) as opened:
        opened.maintain()
        found = opened.streams(scope)
    if as_json:
        print_json([as_dict(one) for one in found])
    else:
        print_rows(("stream", "segments", "bytes", "head"), [tuple(map(str, as_dict(one).values())) for one in found])


def as_dict(info: "StreamInfo") -> dict[str, object]:
    """Return what --json prints of a stream."""
    return {"name": info.name, "segments": len(info.segments), "size_bytes": info.size_bytes, "head": str(info.head)}
