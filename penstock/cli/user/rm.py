"""``penstock user rm``: remove a user."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, open_users

EXAMPLE = "penstock user rm anna"


def rm(name: NameArgument, *, store: FolderOption = STORE_DEFAULT) -> None:
    """Remove a user; the password and all tokens become invalid."""
    open_users(store).remove(name)
    typer.echo(f"{name}: removed")
