"""``penstock aggregate``: merge streams into another one, with Spark or without."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._job import (
    CheckpointOption,
    FollowOption,
    LocalOption,
    OptionOption,
    job,
    print_report,
    refuse_with_local,
    run_locally,
)
from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.errors import BadArgument

EXAMPLE = "penstock aggregate plant/readings plant/alarms --into plant/all"


def aggregate(
    streams: Annotated[list[str], typer.Argument(metavar="STREAM", help="Their names: scope/name.")],
    *,
    into: Annotated[str, typer.Option(metavar="STREAM", help="The stream that they are merged into.")],
    key: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="The key of an event, from the source's columns; by default its own."),
    ] = None,
    follow: FollowOption = False,
    checkpoint: CheckpointOption = None,
    option: OptionOption = None,
    local: LocalOption = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Merge the events of several streams, with keys and headers, into one; run again, it continues where it stopped.

    An event without a key gets the name of its stream.
    """
    if local:
        from penstock.events.aggregate import aggregate as copy

        refuse_with_local(("--key", key is not None), ("--option", bool(option)))
        if checkpoint is None and "://" in store:
            raise BadArgument("the store is not a folder: name a folder for the job's progress with --checkpoint")
        place = checkpoint or Path(store, "checkpoints", f"aggregate-local-{into.replace('/', '.')}")
        title = f"{', '.join(streams)} into {into}"
        run_locally(
            store,
            title,
            lambda opened, watch: copy(opened, streams, into, checkpoint=place, follow=follow, watch=watch),
            as_json=as_json,
        )
        return
    from penstock.spark import aggregate as run

    with job("aggregate", f"merging into {into}", store, option) as (spark, address, given):
        done = run(
            spark,
            address,
            streams,
            into,
            follow=follow,
            checkpoint=checkpoint,
            **({} if key is None else {"key": key}),
            **given,
        )
    print_report(done, f"{', '.join(streams)} into {into}", as_json=as_json)
