"""``penstock user revoke``: take back what was granted."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, PatternArgument, PermissionArgument, open_users

EXAMPLE = "penstock user revoke anna read 'plant/*'"


def revoke(
    name: NameArgument, permission: PermissionArgument, pattern: PatternArgument, *, store: FolderOption = STORE_DEFAULT
) -> None:
    """Take back what was granted in these very words; other grants stay as they are."""
    open_users(store).revoke(name, permission, pattern)
    typer.echo(f"{name}: {permission} {pattern} is not granted any more")
