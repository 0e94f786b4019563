"""``penstock doctor``: check whether this machine can run Penstock, and say what to do if it cannot."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import print_rows
from penstock.cli._store import STORE_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cli._check import Check

EXAMPLE = "penstock doctor --store ./data"

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    *,
    store: Annotated[
        str,
        typer.Option(
            "--store", envvar="PENSTOCK_STORE", metavar="PATH", help="The folder of the store, or of a store to come."
        ),
    ] = STORE_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check Python, packages, Java, the disk, limits and the settings of a server; exit with 1 if a check fails."""
    from penstock.cli._checks import check_machine

    checks = [*_check_store(store), *check_machine(_existing_folder(store))]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        _print_table(checks)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


def _check_store(store: str) -> "list[Check]":
    """Return what is wrong with the address: a file, or a store whose disk is not checked here."""
    from penstock.cli._check import Check
    from penstock.errors import FolderUnusable
    from penstock.ports import check_no_file

    if _is_elsewhere(store):
        fix = "run penstock doctor on the machine of the server; here, the disk of this folder is checked"
        return [Check(name="store", status="warn", found=f"{store} is not a folder", fix=fix)]
    try:
        check_no_file(store)
    except FolderUnusable as error:
        return [Check(name="store", status="fail", found=f"{store}: {error.reason}", fix="name a folder with --store")]
    return []


def _is_elsewhere(store: str) -> bool:
    return "://" in store or store == "memory:"


def _existing_folder(store: str) -> Path:
    """Return the folder in which the store is, or would be created; the current one if a server has the store."""
    path = Path() if _is_elsewhere(store) else Path(store).absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _print_table(checks: "Iterable[Check]") -> None:
    """Print a table on a terminal; otherwise one line per check, with tabs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not sys.stdout.isatty():
        print_rows((), [(check.name, check.status, check.found, check.fix) for check in checks])
        return
    table = Table("check", "status", box=None, pad_edge=False)
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    for check in checks:
        table.add_row(check.name, Text(check.status, style=_COLOURS[check.status]), Text(check.found), Text(check.fix))
    Console().print(table)
