"""``penstock group create``: create a reader group."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, fail, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.cli._values import is_time
from penstock.errors import GroupExists

EXAMPLE = "penstock group create alarms plant/readings --from tail"


def create(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")],
    streams: Annotated[list[str], typer.Argument(metavar="STREAM", help="The streams it reads: scope/name.")],
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="head|tail|CUT|TIME",
            help="Where it starts; TIME is milliseconds, a date, or an age like 10m.",
        ),
    ] = "head",
    exist_ok: Annotated[
        bool,
        typer.Option(
            "--exist-ok",
            help="Keep an existing group as it is; it must read these streams and have started at the CUT.",
        ),
    ] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a reader group, whose readers share the segments of streams.

    With --exist-ok the same command may run again. An existing group continues from its position, whatever head, tail
    or a time means by now; a group that was created with other streams, or at another CUT, is refused.
    """
    with existing_store(store) as opened:
        cuts = [parse_place(opened, stream, "--from", start) for stream in streams]
        try:
            group = opened.create_reader_group(name, streams, start=cuts)
        except GroupExists:
            if not exist_ok:
                fail(f"reader group {name!r} exists: choose another name, or give --exist-ok to keep it as it is")
            moves = start in ("head", "tail") or is_time(start)
            group = opened.create_reader_group(name, streams, start=None if moves else cuts, exist_ok=True)
        names, position = list(group.streams), [str(cut) for cut in group.position]
    if as_json:
        print_json({"name": name, "streams": names, "position": position})
    else:
        typer.echo(f"{name}: reads {', '.join(names)}")
