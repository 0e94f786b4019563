"""``penstock aggregate``: merge streams into another one, with Spark."""

from typing import Annotated

import typer

from penstock.cli._job import CheckpointOption, FollowOption, OptionOption, job, print_report
from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption

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
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Merge the events of several streams, with keys and headers, into one; run again, it continues where it stopped.

    An event without a key gets the name of its stream.
    """
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
