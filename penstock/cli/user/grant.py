"""``penstock user grant``: grant a permission."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, PatternArgument, PermissionArgument, open_users

EXAMPLE = "penstock user grant anna write 'plant/*'"


def grant(
    name: NameArgument, permission: PermissionArgument, pattern: PatternArgument, *, store: FolderOption = STORE_DEFAULT
) -> None:
    """Allow a user to read, consume, write or administer streams; everything else is denied."""
    open_users(store).grant(name, permission, pattern)
    typer.echo(f"{name}: may {permission} {pattern}")
