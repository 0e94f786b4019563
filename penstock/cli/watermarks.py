"""``penstock watermarks``: list the watermarks of a stream."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, moment, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli._values import parse_time

if TYPE_CHECKING:
    from penstock.model import Watermark

EXAMPLE = "penstock watermarks plant/readings --last 3"


def watermarks(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    *,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="The first time: milliseconds, a date, or an age like 10m."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The time to stop before.")] = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, help="Only the last N watermarks.")] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the watermarks of a stream: lower time, upper time, and the cut; all events up to lower lie before it."""
    first = None if start is None else parse_time("--from", start)
    before = None if end is None else parse_time("--to", end)
    with existing_store(store) as opened:
        opened.maintain()  # to include times that were noted by a process that has ended
        marks = opened.watermarks(stream, first, before)
    marks = marks if last is None else marks[-last:]
    if as_json:
        print_json([as_dict(mark) for mark in marks])
    else:
        print_rows(
            ("lower", "upper", "cut"), [(moment(mark.lower), moment(mark.upper), str(mark.cut)) for mark in marks]
        )


def as_dict(mark: "Watermark") -> dict[str, object]:
    """Return the JSON object of a watermark."""
    return {"lower": mark.lower, "upper": mark.upper, "cut": str(mark.cut)}
