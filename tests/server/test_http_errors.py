"""Requests that fail for a reason that nobody expected."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from penstock.server._http_errors import ErrorsLogged

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


def run(kind: str, *, begins: bool) -> list[Message]:
    """Let a request fail, before its answer has begun or after it; return what was sent."""
    sent: list[Message] = []

    async def fail(_: Scope, __: Receive, send: Send) -> None:
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("inside")

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(dict(message))

    scope: dict[str, Any] = {"type": kind, "path": "/metrics", "headers": []}
    try:
        asyncio.run(ErrorsLogged(fail)(scope, receive, send))
    except RuntimeError:
        sent.append({"type": "raised"})
    return sent


@pytest.mark.parametrize(
    ("kind", "begins", "types"),
    [
        ("http", False, ["http.response.start", "http.response.body"]),
        ("http", True, ["http.response.start", "raised"]),
        ("websocket", False, ["raised"]),
    ],
)
def test_a_failed_request_is_logged_and_answered_once(
    caplog: pytest.LogCaptureFixture, kind: str, begins: bool, types: list[str]
) -> None:
    """A second answer behind half of one would be read as a part of it: the connection is closed instead."""
    sent = run(kind, begins=begins)
    assert [message["type"] for message in sent] == types
    assert b"inside" not in b"".join(message.get("body", b"") for message in sent)
    [record] = [record for record in caplog.records if record.name == "penstock.server"]
    assert (record.levelno, record.__dict__["path"]) == (logging.ERROR, "/metrics")
    if not begins and kind == "http":
        assert sent[0]["status"] == 500
