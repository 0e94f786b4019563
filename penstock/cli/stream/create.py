"""``penstock stream create``: make a stream, and the store if there is none."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, new_store
from penstock.cli._values import parse_duration, parse_size
from penstock.cli.stream._info import NameArgument, print_change, segments_of
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.model import Retention, Scaling

EXAMPLE = "penstock stream create plant/alarms --segments 2 --retention-time 7d --tag urgent"


def create(
    name: NameArgument,
    *,
    segments: Annotated[int | None, typer.Option(help="How many it starts with.", show_default="1")] = None,
    retention_time: Annotated[str | None, typer.Option(metavar="7d", help="Drop what is older.")] = None,
    retention_size: Annotated[str | None, typer.Option(metavar="10GB", help="Drop the oldest above this size.")] = None,
    retention_consumption: Annotated[
        bool, typer.Option("--retention-consumption", help="Drop what every reader group has read.")
    ] = False,
    scale_events: Annotated[
        float | None, typer.Option(metavar="N", help="Split segments that take more than N events a second.")
    ] = None,
    scale_bytes: Annotated[
        str | None, typer.Option(metavar="1MB", help="Split segments that take more than this a second.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="T", help="A word to remember; may be repeated.")] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="One that is there stays as it is.")] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make a stream; the store is made, too, if it is not there."""
    from penstock.model import StreamConfig, check_segments, check_stream_name

    check_stream_name(name)  # all of this before a store is made
    if segments is not None:
        check_segments(segments)
    config = StreamConfig(
        scaling=_scaling(scale_events, scale_bytes),
        retention=_retention(retention_time, retention_size, by_consumption=retention_consumption),
        tags=tuple(tag or ()),
    )
    with new_store(store) as opened:
        info = opened.create_stream(name, segments, config, exist_ok=exist_ok)
    print_change(info, segments_of(info), as_json=as_json)


def _scaling(events: float | None, size: str | None) -> "Scaling":
    from penstock.model import ByDataRate, ByEventRate, Fixed

    if events is not None and size is not None:
        raise BadArgument("--scale-events and --scale-bytes: give one of them")
    if events is not None:
        return ByEventRate(events)
    return Fixed() if size is None else ByDataRate(parse_size(size))


def _retention(time: str | None, size: str | None, *, by_consumption: bool) -> "Retention | None":
    from penstock.model import ByConsumption, BySize, ByTime

    if (time is not None) + (size is not None) + by_consumption > 1:
        raise BadArgument("--retention-time, --retention-size and --retention-consumption: give one of them")
    if time is not None:
        return ByTime(parse_duration(time))
    if size is not None:
        return BySize(parse_size(size))
    return ByConsumption() if by_consumption else None
