"""``penstock restore``: make a store of a backup."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, act_progress, human_size, print_json
from penstock.cli._signals import says_when_interrupted

EXAMPLE = "penstock restore ./penstock-backup ./restored"


def restore(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The backup: a folder, s3://bucket/prefix or az://container/prefix.")
    ],
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder of the new store: a new or an empty one.")
    ],
    *,
    at: Annotated[
        str | None, typer.Option(metavar="POINT", help="A point that penstock backup ls lists; by default the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a store in a new or empty folder, as it was at a point of a backup.

    Every block is compared with its checksum. A restore that fails or is interrupted leaves no store.
    """
    from penstock.backup import restore_store

    with says_when_interrupted("nothing was restored; run the restore again"), act_progress() as on_progress:
        result = restore_store(target, folder, at=at, on_progress=on_progress)
    if as_json:
        print_json({"point": result.point, "plogs": result.plogs, "size_bytes": result.size_bytes})
    else:
        typer.echo(f"{folder}: restored from {result.point}, {human_size(result.size_bytes)}")
