"""Who somebody is on a server: three options that every command has which opens a store, and two variables.

A password and a token are never arguments, where others on the machine could see them.
"""

from __future__ import annotations

import inspect
import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, get_type_hints

import typer

from penstock.cli._store import StoreOption
from penstock.errors import BadArgument, NotAuthenticated, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Credentials", "credentials", "in_options", "with_credentials"]

UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="PENSTOCK_USER",
        metavar="NAME",
        help="Who you are on a server; PENSTOCK_PASSWORD is the password, or it is asked for; or set PENSTOCK_TOKEN.",
    ),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option("--tls-ca", envvar="PENSTOCK_TLS_CA", metavar="FILE", help="A copy of the server's certificate."),
]
TlsOption = Annotated[
    bool | None,
    typer.Option("--tls/--no-tls", help="Speak TLS to a server; by default unless it is on this machine."),
]
_OPTIONS: Final[Mapping[str, object]] = {"user": UserOption, "tls_ca": TlsCaOption, "tls": TlsOption}
_SPELLED: Final = (
    ("user and password, or a token", "--user, or a token in PENSTOCK_TOKEN"),
    ("tls_ca", "--tls-ca"),
    ("tls=True", "--tls"),
    ("tls=False", "--no-tls"),
)


class Credentials(TypedDict, total=False):
    """What ``penstock.connect`` takes besides the address of a server."""

    user: str
    password: str
    token: str
    tls_ca: str
    tls: bool


_given: Final[ContextVar[Credentials]] = ContextVar("given")


def with_credentials(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options, if it opens a store; it need not know of them."""
    if get_type_hints(command, include_extras=True).get("store") != StoreOption:
        return command

    @wraps(command)
    def run(*args: object, user: str | None, tls_ca: str | None, tls: bool | None, **kwargs: object) -> object:
        given: Credentials = {}
        if user is not None:
            given["user"] = user
        if tls_ca is not None:
            given["tls_ca"] = tls_ca
        if tls is not None:
            given["tls"] = tls
        _given.set(given)
        return command(*args, **kwargs)

    known = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _OPTIONS.items()
    ]
    run.__signature__ = known.replace(parameters=[*known.parameters.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **_OPTIONS}
    return run


@contextmanager
def in_options() -> Iterator[None]:
    """Let what is wrong with who somebody is, or with TLS, be told in the words of the command line."""
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
    """Return who somebody is, as the options and the environment say; a password that is missing is asked for."""
    found, token = _given.get({}).copy(), os.environ.get("PENSTOCK_TOKEN")
    if token is not None:
        if "user" in found:
            raise BadArgument("PENSTOCK_TOKEN says who you are, and so does the user: leave one of them out")
        found["token"] = token
    if "user" in found:
        found["password"] = os.environ.get("PENSTOCK_PASSWORD") or _asked()
    return found


def _asked() -> str:
    if not sys.stdin.isatty():
        raise BadArgument("there is no terminal to ask for the password: put it into PENSTOCK_PASSWORD")
    password: str = typer.prompt("Password", hide_input=True, err=True)
    return password
