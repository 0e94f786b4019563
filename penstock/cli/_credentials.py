"""Credentials for a server: four options of every command that opens a store, and two variables.

Passwords and tokens are never arguments, where other users of the machine could see them.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypedDict, get_type_hints

import typer

from penstock.cli._options import CommandWithOptions, options_of
from penstock.cli._store import StoreOption
from penstock.errors import BadArgument, FutoinError, NotAuthenticated, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "Credentials",
    "StoreCommand",
    "calling_user",
    "credentials",
    "futoin_credentials",
    "in_futoin_options",
    "in_options",
    "opens_store",
]

UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="PENSTOCK_USER",
        metavar="NAME",
        help="The user name on a server; the password is PENSTOCK_PASSWORD or prompted for. Or set PENSTOCK_TOKEN.",
    ),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option("--tls-ca", envvar="PENSTOCK_TLS_CA", metavar="FILE", help="A copy of the server's certificate."),
]
TlsOption = Annotated[
    bool | None,
    typer.Option("--tls/--no-tls", help="Use TLS. Default: on, except for a server on this machine."),
]
PlogsOption = Annotated[
    str | None,
    typer.Option(
        "--plogs", metavar="URL", help="The bucket with the server's plogs, s3://bucket/prefix: read events there."
    ),
]
_SPELLED: Final = (
    ("user and password, or a token", "--user, or a token in PENSTOCK_TOKEN"),
    ("as user and password", "with --user, and PENSTOCK_PASSWORD"),
    ("invalid mac_key", "invalid PENSTOCK_MAC_KEY"),
    ("tls_ca", "--tls-ca"),
    ("tls=True", "--tls"),
    ("tls=False", "--no-tls"),
)


class Credentials(TypedDict, total=False):
    """The arguments of ``penstock.connect`` besides the address of a server."""

    user: str
    password: str
    token: str
    tls_ca: str
    tls: bool
    plogs: str


_given: Final[ContextVar[Credentials]] = ContextVar("given")


def opens_store(command: Callable[..., object]) -> bool:
    """Whether a command has the option ``--store``, which may name a server."""
    return get_type_hints(command, include_extras=True).get("store") == StoreOption


def _note(
    *, user: UserOption = None, tls_ca: TlsCaOption = None, tls: TlsOption = None, plogs: PlogsOption = None
) -> None:
    """Store the credentials for the store that the command opens."""
    given: Credentials = {}
    if user is not None:
        given["user"] = user
    if tls_ca is not None:
        given["tls_ca"] = tls_ca
    if tls is not None:
        given["tls"] = tls
    if plogs is not None:
        given["plogs"] = plogs
    _given.set(given)


class StoreCommand(CommandWithOptions):
    """A command that opens a store: it has four more options, which its function does not receive."""

    options: ClassVar[Sequence[Any]] = options_of(_note)

    def names_server(self, context: typer.Context) -> bool:
        """Whether the command is about a server, which may have users."""
        return "://" in context.params["store"]

    def take(self, context: typer.Context, given: dict[str, Any]) -> None:
        """Note the credentials; refuse them for a folder.

        The variables may be set for other commands, so only options on the command line are refused.
        """
        if not self.names_server(context):
            for option in self.options:
                source = context.get_parameter_source(option.name)
                if source is not None and source.name == "COMMANDLINE":
                    raise BadArgument(
                        f"{option.opts[0]} applies only to a server: leave it out for a folder, or name a server"
                    )
        _note(**given)


@contextmanager
def in_options() -> Iterator[None]:
    """Rewrite errors about credentials and TLS in terms of the command line."""
    try:
        yield
    except NotAuthenticated as error:
        raise NotAuthenticated(_spelled(error.reason)) from error
    except StoreUnreachable as error:
        raise StoreUnreachable(error.address, reason=_spelled(error.reason)) from error
    except BadArgument as error:
        raise BadArgument(_spelled(str(error))) from error


def _spelled(text: str) -> str:
    for argument, option in _SPELLED:
        text = text.replace(argument, option)
    return text


def credentials() -> Credentials:
    """Return the credentials from the options and the environment; prompt for a missing password."""
    found, token = _given.get({}).copy(), os.environ.get("PENSTOCK_TOKEN")
    if token:
        if "user" in found:
            raise BadArgument("PENSTOCK_TOKEN and a user name contradict each other: leave one of them out")
        found["token"] = token
    if "user" in found:
        found["password"] = os.environ.get("PENSTOCK_PASSWORD") or _prompt()
    return found


def futoin_credentials() -> dict[str, str | None]:
    """Return the credentials for a server of FutoIn: a user with a password, or with a key that signs messages."""
    given = _given.get({})
    if "tls" in given:
        raise BadArgument("--tls and --no-tls do not apply here: use an address that begins with wss:// or ws://")
    if "plogs" in given:
        raise BadArgument("--plogs does not apply here: FutoIn sends events through the server")
    found: dict[str, str | None] = {"tls_ca": given.get("tls_ca")}
    key = os.environ.get("PENSTOCK_MAC_KEY")
    if "user" in given:
        found["user"] = given["user"]
        found |= {"mac_key": key} if key else {"password": os.environ.get("PENSTOCK_PASSWORD") or _prompt()}
    elif key:
        raise BadArgument("PENSTOCK_MAC_KEY is the key of a user: name the user with --user or PENSTOCK_USER")
    return found


@contextmanager
def in_futoin_options() -> Iterator[None]:
    """Rewrite errors about credentials and TLS for a server of FutoIn in terms of the command line."""
    try:
        with in_options():
            yield
    except FutoinError as error:
        if error.name != "SecurityError" or "user" in _given.get({}):
            raise
        advice = "use --user with PENSTOCK_PASSWORD or PENSTOCK_MAC_KEY; FutoIn takes no PENSTOCK_TOKEN"
        raise NotAuthenticated(f"{error.reason.partition(':')[0]}: {advice}") from error


def calling_user() -> str | None:
    """Return the user that is named on the command line or in the environment."""
    return _given.get({}).get("user")


def _prompt() -> str:
    if not sys.stdin.isatty():
        raise BadArgument("cannot prompt for the password without a terminal: set PENSTOCK_PASSWORD")
    password: str = typer.prompt("Password", hide_input=True, err=True)
    return password
