"""``penstock user grant``: let a user do something."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, PatternArgument, PermissionArgument, open_users

EXAMPLE = "penstock user grant anna write 'plant/*'"


def grant(
    name: NameArgument, permission: PermissionArgument, pattern: PatternArgument, *, store: FolderOption = STORE_DEFAULT
) -> None:
    """Let a user read, write or administer streams; what is not granted is denied."""
    open_users(store).grant(name, permission, pattern)
    typer.echo(f"{name}: may {permission} {pattern}")
