"""``penstock user token``: create a token."""

from typing import Annotated

import typer

from penstock.cli._options import option_names
from penstock.cli._output import JsonOption, print_json
from penstock.cli._store import STORE_DEFAULT
from penstock.cli._values import parse_duration
from penstock.cli.user._users import FolderOption, NameArgument, open_users

EXAMPLE = "penstock user token anna --lifetime 30d"


def token(
    name: NameArgument,
    *,
    lifetime: Annotated[str, typer.Option(metavar="TIME", help="How long it is valid: ms, s, m, h, d, w.")] = "30d",
    store: FolderOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a token, which programs use instead of a password; it is printed once and not stored."""
    with option_names(lifetime_s="--lifetime"):
        secret = open_users(store).token(name, parse_duration("--lifetime", lifetime))
    if as_json:
        print_json({"user": name, "token": secret})
    else:
        typer.echo(secret)
