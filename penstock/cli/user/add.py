"""``penstock user add``: let somebody in."""

from typing import Annotated

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, open_users, read_password

EXAMPLE = "penstock user add bert"


def add(
    name: NameArgument,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Give a user that is there another password.")] = False,
    store: FolderOption = STORE_DEFAULT,
) -> None:
    """Let somebody in, who may do nothing at first; the password is asked for, or read from the standard input."""
    open_users(store).add(name, read_password(), replace=replace)
    typer.echo(f"{name}: added" if not replace else f"{name}: has a new password")
