"""``penstock user mac-key``: create or revoke the key that signs messages of FutoIn."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, print_json
from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, NameArgument, open_users

EXAMPLE = "penstock user mac-key anna"


def mac_key(
    name: NameArgument,
    *,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the key instead.")] = False,
    store: FolderOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create the key with which a FutoIn client signs messages instead of sending a password; it is printed once.

    A user has one key: a new one replaces it.
    """
    users = open_users(store)
    if revoke:
        is_revoked = users.revoke_mac_key(name)
        if as_json:
            print_json({"user": name, "revoked": is_revoked})
        else:
            typer.echo(f"{name}: {'the MAC key is revoked' if is_revoked else 'there was no MAC key'}")
        return
    key = users.new_mac_key(name)
    if as_json:
        print_json({"user": name, "mac_key": key})
    else:
        typer.echo(key)
