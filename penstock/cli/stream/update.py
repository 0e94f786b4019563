"""``penstock stream update``: change the scaling, retention and tags of a stream."""

from typing import Annotated, Any

import typer

from penstock.cli._options import option_names
from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.stream import _config
from penstock.cli.stream._info import NameArgument, config_of, print_change
from penstock.errors import BadArgument

EXAMPLE = "penstock stream update plant/readings --retention-size 10GB"


def update(
    name: NameArgument,
    *,
    retention_time: _config.RetentionTimeOption = None,
    retention_size: _config.RetentionSizeOption = None,
    retention_consumption: _config.RetentionConsumptionOption = False,
    no_retention: Annotated[bool, typer.Option("--no-retention", help="Keep everything.")] = False,
    scale_events: _config.ScaleEventsOption = None,
    scale_bytes: _config.ScaleBytesOption = None,
    no_scaling: Annotated[bool, typer.Option("--no-scaling", help="Keep the current segments.")] = False,
    keys: _config.KeysOption = None,
    tag: _config.TagOption = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Remove all tags.")] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change the settings of a stream that the options name, and no others. --tag replaces all existing tags."""
    import msgspec

    changes: dict[str, Any] = {}
    with option_names(tags="--tag"):
        scaling = _config.given_scaling(scale_events, scale_bytes, fixed=no_scaling)
        if scaling is not None:
            changes["scaling"] = scaling
        retention = _config.given_retention(
            retention_time, retention_size, by_consumption=retention_consumption, none=no_retention
        )
        if retention is not None or no_retention:
            changes["retention"] = retention
        if keys is not None:
            changes["keep_keys"] = keys
        if tag or no_tags:
            changes["tags"] = _config.given_tags(tag, none=no_tags)
        if not changes:
            raise BadArgument("no change is given: see penstock stream update --help")
        with existing_store(store) as opened:
            config = msgspec.structs.replace(opened.stream(name).config, **changes)
            info = opened.update_stream(name, config)
    print_change(info, config_of(info), as_json=as_json)
