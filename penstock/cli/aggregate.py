"""``penstock aggregate``: merge streams into another, by Spark."""

from typing import Annotated

import typer

from penstock.cli._job import (
    CheckpointOption,
    FollowOption,
    OptionOption,
    options_of,
    print_report,
    watched,
)
from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, job_address

EXAMPLE = "penstock aggregate plant/readings plant/alarms --into plant/all"


def aggregate(
    streams: Annotated[list[str], typer.Argument(metavar="STREAM...", help="Their names: scope/name.")],
    *,
    into: Annotated[str, typer.Option(metavar="STREAM", help="The stream that they are merged into.")],
    key: Annotated[
        str, typer.Option(metavar="SQL", help="The key of an event, by the columns of the source.")
    ] = "concat(scope, '/', stream)",
    follow: FollowOption = False,
    checkpoint: CheckpointOption = None,
    option: OptionOption = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Merge the events of streams into one, where they get new ids; again, and it goes on where it was."""
    from penstock.spark import aggregate as run
    from penstock.spark import local_session

    address, options = job_address(store)
    with local_session("aggregate") as spark, watched(f"merging into {into}") as watch:
        done = run(
            spark,
            address,
            streams,
            into,
            key=key,
            follow=follow,
            checkpoint=checkpoint,
            watch=watch,
            options=options | options_of(option),
        )
    print_report(done, f"{', '.join(streams)} into {into}", as_json=as_json)
