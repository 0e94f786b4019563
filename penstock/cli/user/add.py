"""``penstock user add``: add a user."""

from typing import Annotated

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, open_users, read_password

EXAMPLE = "penstock user add bert"


def add(
    name: NameArgument,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Set a new password; the tokens of the user end.")] = False,
    store: FolderOption = STORE_DEFAULT,
) -> None:
    """Add a user without permissions; the password is prompted for, or read from the standard input."""
    open_users(store).add(name, read_password(), replace=replace)
    typer.echo(f"{name}: added" if not replace else f"{name}: password replaced")
