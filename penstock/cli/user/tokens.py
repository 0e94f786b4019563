"""``penstock user tokens``: list tokens."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, moment, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, open_users

EXAMPLE = "penstock user tokens anna"


def tokens(
    name: Annotated[str | None, typer.Argument(metavar="[USER]", help="The user's name; otherwise all users.")] = None,
    *,
    store: FolderOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the tokens that are valid, with their ids and when they expire; a token itself is never shown again."""
    found = [(token.token_id, token.user, int(token.expires * 1000)) for token in open_users(store).tokens(name)]
    if as_json:
        print_json([{"id": token_id, "user": user, "expires": expires} for token_id, user, expires in found])
    else:
        print_rows(("id", "user", "expires"), [(token_id, user, moment(expires)) for token_id, user, expires in found])
