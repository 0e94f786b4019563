"""``penstock user revoke``: revoke a permission."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, PatternArgument, PermissionArgument, open_users

EXAMPLE = "penstock user revoke anna read 'plant/*'"


def revoke(
    name: NameArgument, permission: PermissionArgument, pattern: PatternArgument, *, store: FolderOption = STORE_DEFAULT
) -> None:
    """Revoke a grant with exactly this permission and pattern; other grants stay."""
    open_users(store).revoke(name, permission, pattern)
    typer.echo(f"{name}: may no longer {permission} {pattern}")
