"""``penstock user revoke``: revoke a permission."""

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, PatternArgument, PermissionArgument, open_users

EXAMPLE = "penstock user revoke anna read 'plant/*'"


def revoke(
    name: NameArgument, permission: PermissionArgument, pattern: PatternArgument, *, store: FolderOption = STORE_DEFAULT
) -> None:
    """Revoke a grant with exactly this permission and pattern; other grants stay."""
    was_granted, others = open_users(store).revoke(name, permission, pattern)
    by = ", ".join(f"{grant.permission} {grant.pattern}" for grant in others)
    if not was_granted:
        typer.echo(f"penstock: {name} has no grant {permission} {pattern}" + (f", but {by}" if by else ""), err=True)
        raise typer.Exit(1)
    typer.echo(f"{name}: revoked {permission} {pattern}" + (f"; still granted: {by}" if by else ""))
