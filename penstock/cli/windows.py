"""``penstock windows``: aggregate events by windows of event time, with Spark."""

from typing import Annotated, Literal

import typer

from penstock.cli._job import CheckpointOption, FollowOption, OptionOption, job, print_report
from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption

EXAMPLE = (
    "penstock windows plant/readings --time \"to_timestamp(get_json_object(string(event), '$.at'))\" "
    "--length '1 minute' --table ./minutes"
)


def windows(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    *,
    time: Annotated[str, typer.Option(metavar="SQL", help="The time of an event, from the source's columns.")],
    length: Annotated[str, typer.Option(help="The length of a window, as in '10 minutes'.")],
    slide: Annotated[
        str | None, typer.Option(help="The interval between window starts; the length by default.")
    ] = None,
    group_by: Annotated[
        list[str] | None, typer.Option(metavar="SQL", help="Group the events of a window by this; may be repeated.")
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="SQL", help="An aggregate of each window; the number of events by default."),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Write windows to a Parquet table in this folder.")] = None,
    into: Annotated[str | None, typer.Option(metavar="STREAM", help="Write windows as JSON to this stream.")] = None,
    promise: Annotated[
        Literal["end", "start"],
        typer.Option(help="Whether the watermark of that stream refers to window ends or starts."),
    ] = "end",
    follow: FollowOption = False,
    checkpoint: CheckpointOption = None,
    option: OptionOption = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Aggregate events by windows of time; a window is written once the writers have promised that it is complete."""
    from penstock.spark import windows as run

    with job("windows", f"windows of {stream}", store, option) as (spark, address, given):
        done = run(
            spark,
            address,
            stream,
            time=time,
            length=length,
            slide=slide,
            group_by=group_by or (),
            values=value or ("count(*) AS events",),
            table=table,
            into=into,
            promise=promise,
            follow=follow,
            checkpoint=checkpoint,
            **given,
        )
    print_report(done, f"windows of {stream}", as_json=as_json)
    if done.watermark is None:
        typer.echo(f"no window is complete: no writer of {stream} has noted a time", err=True)
