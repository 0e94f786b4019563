"""``penstock user rm``: let somebody in no more."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, open_users

EXAMPLE = "penstock user rm anna"


def rm(name: NameArgument, *, store: FolderOption = STORE_DEFAULT) -> None:
    """Let somebody in no more, neither with the password nor with a token."""
    open_users(store).remove(name)
    typer.echo(f"{name}: removed")
