"""The options and functions that the user commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli._output import fail
from penstock.errors import BadArgument
from penstock.ports import check_no_file

if TYPE_CHECKING:
    from penstock.server import Users

__all__ = [
    "FolderOption",
    "NameArgument",
    "PatternArgument",
    "PermissionArgument",
    "open_users",
    "read_password",
]

FolderOption = Annotated[
    str, typer.Option("--store", envvar="PENSTOCK_STORE", metavar="PATH", help="The folder of the store.")
]
NameArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
PermissionArgument = Annotated[
    Literal["read", "consume", "write", "admin"],
    typer.Argument(help="The permission; consume includes read, and admin includes all."),
]
PatternArgument = Annotated[str, typer.Argument(metavar="PATTERN", help="The streams: '*', 'scope/*' or scope/name.")]


def open_users(store: str) -> Users:
    """Return the users of the store in a folder; a running server applies every change at once.

    A missing folder is refused, because a mistyped name would look like a store without users.
    """
    from penstock.server import USERS_FILE, Users

    if "://" in store or store == "memory:":
        raise BadArgument(f"{store} is not a folder: change users on the machine that has the store")
    check_no_file(store)
    if not Path(store).is_dir():
        fail(f"no folder {store}: name the store's folder with --store; penstock stream create makes a new one")
    return Users.open(Path(store) / USERS_FILE)


def read_password() -> str:
    """Prompt for a password on a terminal; otherwise read the first line of the standard input."""
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    return sys.stdin.readline().removesuffix("\n")
