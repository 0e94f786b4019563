"""``penstock user rm``: let somebody in no more."""

import typer

from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.user._users import NameArgument, open_users

EXAMPLE = "penstock user rm anna"


def rm(name: NameArgument, *, store: StoreOption = STORE_DEFAULT) -> None:
    """Let somebody in no more, neither with the password nor with a token."""
    open_users(store).remove(name)
    typer.echo(f"{name}: removed")
