"""A client of the console's JSON API, as a page of it is one: with a cookie and an origin."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

if TYPE_CHECKING:
    from email.message import Message

__all__ = ["API", "PASSWORD", "Answer", "Client"]

API: Final = "/console/api"
PASSWORD: Final = "secret"
LONG_S: Final = 30


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the API answers
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The name of the error; empty if there is none."""
        return "" if self.status < 400 else str(self.json["error"])


class Client:
    """Calls the console at a port, with the cookies that it was given."""

    def __init__(self, port: int) -> None:
        self.port: Final = port
        self.cookie: str | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Answer:
        """Send a request; a header of None is left out."""
        given = {"Cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)) as connection:
            connection.request(method, path, body, {name: value for name, value in given.items() if value is not None})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str, **params: object) -> Answer:
        return self.ask("GET", f"{API}/{path}" + (f"?{urlencode(params)}" if params else ""))

    def post(self, path: str, body: object, *, method: str = "POST", **headers: str | None) -> Answer:
        """Send JSON as a page does; headers replace those of the page."""
        sent = {"Origin": self.origin, "Content_Type": "application/json", **headers}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask(method, f"{API}/{path}", content, **sent)

    def sign_in(self, user: str, password: str = PASSWORD) -> Answer:
        """Begin a session, and keep its cookie."""
        answer = self.post("session", {"user": user, "password": password})
        cookie = answer.headers.get("Set-Cookie")
        if cookie is not None:
            self.cookie = cookie.partition(";")[0]
        return answer

    def sign_out(self) -> Answer:
        return self.post("session", {}, method="DELETE")
