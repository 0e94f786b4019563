"""``penstock user expire``: revoke tokens."""

from typing import Annotated

import typer

from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, open_users

EXAMPLE = "penstock user expire anna"


def expire(
    name: NameArgument,
    *,
    token: Annotated[
        str | None, typer.Option(metavar="ID", help="Only the token with this id, the part before its dot.")
    ] = None,
    store: FolderOption = STORE_DEFAULT,
) -> None:
    """Revoke the tokens of a user; clients that use them are disconnected within seconds."""
    token_id = None if token is None else token.partition(".")[0]
    count = open_users(store).revoke_tokens(name, token_id)
    typer.echo(f"{name}: {count} {'token' if count == 1 else 'tokens'} revoked")
