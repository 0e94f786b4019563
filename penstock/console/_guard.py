"""Which requests are taken at all: those of our own pages, with a session where there are users.

A cross-site request is refused by three checks, each of which is enough. The cookie is ``SameSite=Strict``, so other
sites send requests without it. A request that changes something must have an ``Origin`` that is our own. It must also
be JSON, which a form cannot send.

A server without users listens on this machine alone. A page of another site could reach it under a name of its own that
leads to this machine, and would be of the same origin; so only names that cannot be such are taken.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from penstock.console._ports import SignedIn

__all__ = [
    "HEADERS",
    "check_host",
    "check_origin",
    "cookie_name",
    "forget_session",
    "has_own_host",
    "has_own_origin",
    "peer_of",
    "remember_session",
    "token_of",
]

PATH: Final = "/console"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def peer_of(connection: HTTPConnection) -> str:
    """Return where a request comes from, as logins are counted by."""
    return "" if connection.client is None else f"http:[{connection.client.host}]:{connection.client.port}"


def check_host(connection: HTTPConnection) -> None:
    """Refuse a host name that may belong to another site; for servers without users."""
    if not has_own_host(connection):
        host = _host_of(connection)
        raise NotPermitted(None, act=f"open the console under the name {host!r}", advice="use localhost or an address")


def has_own_host(connection: HTTPConnection) -> bool:
    """Whether the name of the host can belong to no other site."""
    host = _host_of(connection)
    return host is not None and (host == "localhost" or host.endswith(".localhost") or _is_address(host))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_origin(connection: HTTPConnection) -> None:
    """Refuse a request that no page of ours has sent."""
    if not has_own_origin(connection):
        raise NotPermitted(
            None, act="change anything from another site", advice="open the console of this server, and do it there"
        )


def has_own_origin(connection: HTTPConnection) -> bool:
    """Whether a page of this server has sent the request."""
    origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
    site = connection.headers.get("sec-fetch-site", "same-origin")
    return bool(host) and _netloc(origin) == host.lower() and site == "same-origin"


def _netloc(url: str) -> str | None:
    try:
        split = urlsplit(url)
    except ValueError:
        return None
    return split.netloc.lower() if split.scheme in {"http", "https"} else None


def _host_of(connection: HTTPConnection) -> str | None:
    try:
        return urlsplit(f"//{connection.headers.get('host', '')}").hostname
    except ValueError:
        return None


def cookie_name(connection: HTTPConnection) -> str:
    """Return the name of the session's cookie; browsers do not tell the ports of a host apart, so it has the port."""
    server = connection.scope.get("server") or ("", 0)
    return f"penstock_console_{server[1]}"


def token_of(connection: HTTPConnection) -> str | None:
    """Return the secret of the session, if there is one."""
    return connection.cookies.get(cookie_name(connection))


def remember_session(connection: HTTPConnection, response: Response, session: SignedIn) -> None:
    """Let the browser send the secret with every call, and show it to no script."""
    response.set_cookie(
        cookie_name(connection),
        session.token,
        max_age=session.lifetime_s,
        path=PATH,
        secure=connection.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def forget_session(connection: HTTPConnection, response: Response) -> None:
    """Let the browser forget the secret."""
    response.delete_cookie(
        cookie_name(connection), path=PATH, secure=connection.url.scheme == "https", httponly=True, samesite="strict"
    )
