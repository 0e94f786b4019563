"""``penstock stream create``: create a stream, and the store if there is none."""

from typing import Annotated

import typer

from penstock.cli._options import option_names
from penstock.cli._output import JsonOption, fail
from penstock.cli._store import STORE_DEFAULT, StoreOption, new_store
from penstock.cli.stream import _config
from penstock.cli.stream._info import NameArgument, created_as, print_change
from penstock.errors import StreamExists

EXAMPLE = "penstock stream create plant/alarms --segments 2 --retention-time 7d --tag urgent"


def create(
    name: NameArgument,
    *,
    segments: Annotated[int | None, typer.Option(help="The initial number of segments; 1 by default.")] = None,
    retention_time: _config.RetentionTimeOption = None,
    retention_size: _config.RetentionSizeOption = None,
    retention_consumption: _config.RetentionConsumptionOption = False,
    scale_events: _config.ScaleEventsOption = None,
    scale_bytes: _config.ScaleBytesOption = None,
    keys: _config.KeysOption = None,
    tag: _config.TagOption = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Leave an existing stream as it is.")] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a stream, and the store if it does not exist."""
    from penstock.model import Fixed, StreamConfig, check_segments, check_stream_name

    with option_names(segments="--segments", tags="--tag"):
        check_stream_name(name)  # all checks before a store is created
        if segments is not None:
            check_segments(segments)
        config = StreamConfig(
            scaling=_config.given_scaling(scale_events, scale_bytes) or Fixed(),
            retention=_config.given_retention(retention_time, retention_size, by_consumption=retention_consumption),
            keep_keys=keys is not False,
            tags=_config.given_tags(tag),
        )
    with new_store(store) as opened:
        try:
            info = opened.create_stream(name, segments, config, exist_ok=exist_ok)
        except StreamExists:
            fail(f"stream {name!r} exists: choose another name, or give --exist-ok to keep it as it is")
    print_change(info, created_as(info), as_json=as_json)
