"""``penstock user token``: make a token, which programs use instead of a password."""

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
    lifetime: Annotated[str, typer.Option(metavar="TIME", help="How long it is good for: ms, s, m, h, d, w.")] = "30d",
    store: FolderOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make a token, which programs use instead of a password; it is printed here and kept nowhere."""
    with option_names(lifetime_s="--lifetime"):
        made = open_users(store).token(name, parse_duration("--lifetime", lifetime))
    if as_json:
        print_json({"user": name, "token": made})
    else:
        typer.echo(made)
