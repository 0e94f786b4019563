"""``penstock group reset``: move a reader group to another position."""

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
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")],
    *,
    to: Annotated[
        list[str],
        typer.Option(
            metavar="head|tail|CHECKPOINT|CUT|TIME",
            help="The new position; TIME is milliseconds, a date, or an age like 10m. Cuts may be repeated.",
        ),
    ],
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Move a reader group to the head, the tail, a checkpoint, a cut or a time; its readers must be opened again.

    A stream of the group without a given cut keeps its position.
    """
    with existing_store(store) as opened:
        group = opened.reader_group(name)
        group.reset(_places(opened, group, to))
        cuts = [str(cut) for cut in group.position]
    if as_json:
        print_json({"name": name, "position": cuts})
    else:
        typer.echo(f"{name}: continues from {' '.join(cuts)}")


def _places(store: "Store", group: "ReaderGroup", to: "Sequence[str]") -> "Checkpoint | list[StreamCut]":
    from penstock.model import StreamCut

    if ":" in to[0] and not is_time(to[0]):
        return [StreamCut.parse(text) for text in to]
    if len(to) > 1:
        raise BadArgument(f"invalid --to {' and '.join(to)}: only cuts may be combined")
    if to[0] in ("head", "tail") or is_time(to[0]):
        return [parse_place(store, stream, "--to", to[0]) for stream in group.streams]
    checkpoints = group.checkpoints
    if to[0] not in checkpoints:
        known = f"it has {', '.join(checkpoints)}" if checkpoints else "it has none; use head, tail, a cut or a time"
        fail(f"reader group {group.name!r} has no checkpoint {to[0]!r}: {known}")
    return checkpoints[to[0]]
