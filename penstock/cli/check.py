"""``penstock check``: check a store, or a backup."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._credentials import StoreCommand
from penstock.cli._output import JsonOption, act_progress, count_of, human_size, print_json
from penstock.cli._store import existing_store
from penstock.errors import PenstockError, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.backup import CheckReport

EXAMPLE = "penstock check ./penstock-data"


class CheckCommand(StoreCommand):
    """A command whose argument is a store, which may be on a server."""

    def names_server(self, context: typer.Context) -> bool:
        """Whether the store is on a server."""
        return str(context.params["store"]).startswith("penstock://")


COMMAND = CheckCommand


def check(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="A store or a backup: a folder, penstock://host:port, s3://… or az://… of a backup."
        ),
    ],
    *,
    at: Annotated[
        str | None, typer.Option(metavar="POINT", help="The point of a backup to check; by default the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read everything in a store or a backup, compare it with its checksums, and say what is wrong.

    Repositories are reconstructed, too. Nothing is changed. A store that is in use is checked through its owner, as it
    is at one moment. The exit code is 0 if all is well, 1 if something is wrong, and 2 if something could not be
    checked.
    """
    try:
        with act_progress() as on_progress:
            report = _check(store, at, on_progress)
    except (PenstockError, OSError) as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        print_json(asdict(report) | {"good": report.is_good})
    else:
        _print(store, report)
    if not report.is_good:
        raise typer.Exit(1)
    if report.unchecked:
        raise typer.Exit(2)


def _check(store: str, at: str | None, on_progress: "Callable[[str, int, int], object]") -> "CheckReport":
    from penstock.backup import check_backup, check_folder, check_store
    from penstock.errors import BadArgument

    if store.startswith(("s3://", "az://")) or Path(store, "backup").is_file():
        return check_backup(store, at=at, on_progress=on_progress)
    if at is not None:
        raise BadArgument("--at names a point of a backup, and this is a store: leave it out")
    if "://" not in store:
        if not Path(store, "plogs").is_dir():
            raise BadArgument(f"no store and no backup in {store}: name the folder of one")
        try:
            return check_folder(store, on_progress=on_progress)
        except StoreLocked:
            pass  # its owner takes a snapshot
    with existing_store(store) as opened:
        return check_store(opened, on_progress=on_progress)


def _print(store: str, report: "CheckReport") -> None:
    for finding in report.findings:
        typer.echo(str(finding))
    for skipped in report.unchecked:
        typer.echo(f"not checked: {skipped}")
    counts = (
        count_of(report.streams, "stream"),
        count_of(report.events, "event"),
        *([f"{count_of(report.items, 'item')} of repositories"] if report.items else []),
        count_of(report.plogs, "plog"),
        human_size(report.size_bytes),
    )
    outcome = "no damage" if report.is_good else count_of(len(report.findings), "finding")
    typer.echo(f"{store}: {outcome} ({', '.join(counts)})")
