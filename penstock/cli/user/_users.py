"""What the commands about users share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.server._users import Users

__all__ = [
    "FolderOption",
    "NameArgument",
    "PatternArgument",
    "PermissionArgument",
    "check_folder",
    "open_users",
    "read_password",
]

FolderOption = Annotated[
    str, typer.Option("--store", envvar="PENSTOCK_STORE", metavar="PATH", help="The folder of the store.")
]
NameArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
PermissionArgument = Annotated[
    Literal["read", "write", "admin"], typer.Argument(help="Who may administer may read and write, too.")
]
PatternArgument = Annotated[str, typer.Argument(metavar="PATTERN", help="'*', 'scope/*' or scope/name.")]


def check_folder(store: str) -> None:
    """Refuse a folder that is not there: a name that was mistyped looks like one without users."""
    if "://" not in store and not Path(store).is_dir():
        raise BadArgument(f"there is no folder {store}: name the store's folder with --store")


def open_users(store: str) -> Users:
    """Return the users of the store in a folder; a server that has it open knows every change at once."""
    from penstock.server._users import USERS_FILE, Users

    if "://" in store or store == "memory:":
        raise BadArgument(f"{store} is no folder: users are changed on the machine that has the store")
    return Users.open(Path(store) / USERS_FILE)


def read_password() -> str:
    """Ask for a password on a terminal; elsewhere it is the first line of the standard input."""
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    return sys.stdin.readline().removesuffix("\n")
