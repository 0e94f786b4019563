"""``penstock archive``: copy a stream to a Parquet or Delta table, with Spark."""

from typing import Annotated

import typer

from penstock.cli._job import CheckpointOption, FollowOption, OptionOption, job, print_report
from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption

EXAMPLE = "penstock archive plant/readings ./archive"


def archive(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The folder of the table.")],
    *,
    date: Annotated[
        str, typer.Option(metavar="SQL", help="The date of an event, from the source's columns.")
    ] = "coalesce(mark_time, current_timestamp())",
    delta: Annotated[bool, typer.Option("--delta", help="Write a Delta table instead of Parquet.")] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Truncate the stream up to where all consumers have read it.")
    ] = False,
    consumer: Annotated[
        str | None, typer.Option(help="The consumer name that the archive is registered under.")
    ] = None,
    follow: FollowOption = False,
    checkpoint: CheckpointOption = None,
    option: OptionOption = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Copy the events of a stream to a table, partitioned by date; run again, it continues where it stopped."""
    from penstock.spark import archive as run

    with job("archive", f"archiving {stream}", store, option) as (spark, address, given):
        done = run(
            spark,
            address,
            stream,
            table,
            date=date,
            delta=delta,
            discard=discard,
            consumer=consumer,
            follow=follow,
            checkpoint=checkpoint,
            **given,
        )
    print_report(done, f"{stream} to {table}", as_json=as_json)
