"""``penstock group reset``: let a reader group read from another place."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, fail, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, parse_place
from penstock.cli._values import is_time
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock import ReaderGroup, Store
    from penstock.model import Checkpoint, StreamCut

EXAMPLE = "penstock group reset dashboard --to head"


def reset(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")],
    *,
    to: Annotated[
        list[str],
        typer.Option(
            metavar="head|tail|CHECKPOINT|CUT|TIME",
            help="Where to read on; TIME is milliseconds or a date. Cuts of several streams may be given one by one.",
        ),
    ],
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let a reader group read on from the head, the tail, a checkpoint, a cut or a time; readers must be opened again.

    A stream of the group that no cut is given for stays where it is.
    """
    with existing_store(store) as opened:
        group = opened.reader_group(name)
        group.reset(_places(opened, group, to))
        cuts = [str(cut) for cut in group.position]
    if as_json:
        print_json({"name": name, "position": cuts})
    else:
        typer.echo(f"{name}: reads on from {' '.join(cuts)}")


def _places(store: "Store", group: "ReaderGroup", to: "Sequence[str]") -> "Checkpoint | list[StreamCut]":
    from penstock.model import StreamCut

    if ":" in to[0] and not is_time(to[0]):
        return [StreamCut.parse(text) for text in to]
    if len(to) > 1:
        raise BadArgument(f"--to cannot be {' and '.join(to)}: only cuts may be given together")
    if to[0] in ("head", "tail") or is_time(to[0]):
        return [parse_place(store, stream, "--to", to[0]) for stream in group.streams]
    checkpoints = group.checkpoints
    if to[0] not in checkpoints:
        fail(f"reader group {group.name!r} has no checkpoint {to[0]!r}: there are {list(checkpoints)}")
    return checkpoints[to[0]]
