"""``penstock backup``: back up a store, list and verify backups."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli._credentials import StoreCommand
from penstock.cli._output import JsonOption, act_progress, count_of, fail, human_size, print_json, print_rows, size
from penstock.cli._signals import says_when_interrupted
from penstock.cli._store import existing_store
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.backup import BackupReport, PointInfo, VerifyReport

EXAMPLE = "penstock backup ./penstock-data ./penstock-backup --keep 7"
_LIST = "ls"
_AS_BEFORE = "earlier points are as they were; run the backup again, which copies only what is missing"


class BackupCommand(StoreCommand):
    """A command whose first argument is a store, which may be on a server."""

    def names_server(self, context: typer.Context) -> bool:
        """Whether the store is on a server."""
        return str(context.params["store"]).startswith("penstock://")


COMMAND = BackupCommand


def backup(
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", help="The store: a folder, or penstock://host:port; or ls, to list points."),
    ],
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="A folder, s3://bucket/prefix or az://container/prefix."),
    ] = None,
    *,
    keep_points: Annotated[
        int | None,
        typer.Option("--keep", min=1, metavar="N", help="Remove all points but the newest N at the end."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Back nothing up: read all of the TARGET, the only argument, and check it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Back up a whole store as it is at one moment, while it is used; only what is new is copied.

    Each run adds a point in time to the TARGET. penstock backup ls TARGET lists them, and penstock restore makes a
    store of one. A backup that was interrupted leaves earlier points as they are: run it again.
    """
    from penstock.backup import backup_store, list_points, verify_backup

    if verify:
        if target is not None or keep_points is not None:
            raise BadArgument("--verify takes the TARGET alone: leave out STORE and --keep")
        with act_progress() as on_progress:
            checked = verify_backup(store, on_progress=on_progress)
        _report_verified(store, checked, as_json=as_json)
        return
    if target is None:
        raise BadArgument("name a STORE and a TARGET; penstock backup ls TARGET lists the points of a backup")
    if store == _LIST:
        _report_points(list_points(target), as_json=as_json)
        return
    with (
        says_when_interrupted(_AS_BEFORE),
        existing_store(store, named_by="STORE") as opened,
        act_progress() as on_progress,
    ):
        result = backup_store(opened, target, keep_points=keep_points, on_progress=on_progress)
    _report_backup(result, as_json=as_json)


def _report_backup(result: "BackupReport", *, as_json: bool) -> None:
    if as_json:
        figures: dict[str, Any] = {name: getattr(result, name) for name in ("point", "plogs", "size_bytes")}
        print_json(figures | {"copied_bytes": result.copied_bytes, "removed_points": list(result.removed_points)})
        return
    typer.echo(
        f"{result.point}: {human_size(result.size_bytes)}, of which {human_size(result.copied_bytes)} were copied"
    )
    for name in result.removed_points:
        typer.echo(f"{name}: removed")


def _report_points(points: "list[PointInfo]", *, as_json: bool) -> None:
    if as_json:
        names = ("name", "time_ms", "plogs", "size_bytes", "new_bytes")
        print_json([{name: getattr(point, name) for name in names} for point in points])
        return
    rows = [(point.name, _size(point.size_bytes), _size(point.new_bytes)) for point in points]
    print_rows(("point", "bytes", "new bytes"), rows)


def _size(count: int | None) -> str:
    return "damaged" if count is None else size(count)


def _report_verified(target: str, checked: "VerifyReport", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "points": list(checked.points),
                "packs": checked.packs,
                "size_bytes": checked.size_bytes,
                "damaged": list(checked.damaged),
                "good": list(checked.good),
                "faults": [str(fault) for fault in checked.faults],
            }
        )
    for fault in checked.faults:
        typer.echo(f"penstock: {fault}", err=True)
    if checked.faults:
        for name in checked.damaged:
            typer.echo(f"penstock: point {name} cannot be restored completely", err=True)
        fail(f"damaged points of {target}: {len(checked.damaged)} of {len(checked.points)}; {checked.advice}")
    if not as_json:
        typer.echo(
            f"{target}: {count_of(len(checked.points), 'point')} and {human_size(checked.size_bytes)} are as written"
        )
