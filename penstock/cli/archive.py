"""``penstock archive``: copy a stream to a Parquet, Delta or Iceberg table, with Spark or without."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock import Store
    from penstock.events.archive import Copied

EXAMPLE = "penstock archive plant/readings ./archive"


class TableFormat(StrEnum):
    """The formats of a table."""

    parquet = "parquet"
    delta = "delta"
    iceberg = "iceberg"


_DATE = "coalesce(mark_time, current_timestamp())"


def archive(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The folder of the table.")],
    *,
    date: Annotated[str, typer.Option(metavar="SQL", help="The date of an event, from the source's columns.")] = _DATE,
    table_format: Annotated[
        TableFormat, typer.Option("--table", help="The format of the table; Iceberg tables are written without Spark.")
    ] = TableFormat.parquet,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The SQL catalog of an Iceberg table; by default catalog.db in its folder."),
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Truncate the stream up to where all consumers have read it.")
    ] = False,
    consumer: Annotated[
        str | None, typer.Option(help="The consumer name that the archive is registered under.")
    ] = None,
    follow: FollowOption = False,
    checkpoint: CheckpointOption = None,
    option: OptionOption = None,
    local: LocalOption = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Copy the events of a stream to a table, partitioned by date; run again, it continues where it stopped."""
    is_iceberg = table_format is TableFormat.iceberg
    if catalog is not None and not is_iceberg:
        raise BadArgument("only an Iceberg table has a catalog: add --table iceberg, or leave out --catalog")
    if local or is_iceberg:
        from penstock.events.archive import archive as copy

        refuse_with_local(
            ("--date", date != _DATE),
            ("--table delta", table_format is TableFormat.delta),
            ("--option", bool(option)),
            given="--table iceberg" if is_iceberg else "--local",
        )

        def copied(opened: "Store", watch: "Callable[[Copied], object]") -> "Copied":
            return copy(
                opened,
                stream,
                table,
                discard=discard,
                consumer=consumer,
                follow=follow,
                checkpoint=checkpoint,
                watch=watch,
                table_format="iceberg" if is_iceberg else "parquet",
                catalog=catalog,
            )

        run_locally(store, f"{stream} to {table}", copied, as_json=as_json)
        return
    from penstock.spark import archive as run

    with job("archive", f"archiving {stream}", store, option) as (spark, address, given):
        done = run(
            spark,
            address,
            stream,
            table,
            date=date,
            delta=table_format is TableFormat.delta,
            discard=discard,
            consumer=consumer,
            follow=follow,
            checkpoint=checkpoint,
            **given,
        )
    print_report(done, f"{stream} to {table}", as_json=as_json)
