"""The lines that the server writes."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.server._logs import logging_to
from tests.server.apart import server_apart
from tests.server.http2 import END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame

if TYPE_CHECKING:
    from pathlib import Path

LOGGER = logging.getLogger("penstock.server")
LINES_MAX = 20


def test_json_line_has_everything() -> None:
    """Programs search by fields, not by words."""
    file = io.StringIO()
    with logging_to(file, "json", LINES_MAX):
        LOGGER.info("serving %s", "data", extra={"port": 7367, "user": "anna"})
    line = json.loads(file.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    expected = {"level": "info", "logger": "penstock.server", "message": "serving data", "port": 7367, "user": "anna"}
    assert line == expected


def test_plain_line_has_everything() -> None:
    """People read from left to right: when, how bad, who, what."""
    file = io.StringIO()
    with logging_to(file, "plain", LINES_MAX):
        LOGGER.warning("serving %s", "data", extra={"port": 7367})
    assert re.fullmatch(r"\S+Z warning penstock\.server serving data port=7367\n", file.getvalue())


@pytest.mark.parametrize("form", ["plain", "json"])
def test_a_client_cannot_forge_a_line(form: str) -> None:
    """A user's name may hold a line end, and what looks like a line of ours behind it."""
    file = io.StringIO()
    with logging_to(file, "json" if form == "json" else "plain", LINES_MAX):
        LOGGER.info("no user %s", "x\n2026 info forged\x1b[2J", extra={"path": "a\r\nb"})
    assert len(file.getvalue().splitlines()) == 1
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("form", ["plain", "json"])
def test_error_comes_with_its_traceback(form: str) -> None:
    """It is our own mistake then, and only the log says where."""
    file = io.StringIO()
    with logging_to(file, "json" if form == "json" else "plain", LINES_MAX):
        try:
            raise KeyError("key")  # noqa: TRY301
        except KeyError:
            LOGGER.exception("failed")
    assert "Traceback" in file.getvalue()
    assert "KeyError: 'key'" in file.getvalue()
    if form == "json":
        assert "KeyError" in json.loads(file.getvalue())["error"]


def test_value_that_is_no_json_is_told_as_text() -> None:
    """A line that cannot be written would be lost."""
    file = io.StringIO()
    with logging_to(file, "json", LINES_MAX):
        LOGGER.info("x", extra={"cut": {1, 2}})
    assert json.loads(file.getvalue())["cut"] == "{1, 2}"


def test_chatter_of_the_http_server_is_left_out() -> None:
    """Its warnings are not."""
    file = io.StringIO()
    with logging_to(file, "plain", LINES_MAX):
        logging.getLogger("uvicorn.error").info("Started server process")
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        LOGGER.debug("details")
    assert [line.split(" ", 3)[3] for line in file.getvalue().splitlines()] == ["Invalid HTTP request received."]


def test_logging_is_as_before_afterwards() -> None:
    """A server may run within somebody's program, which logs in its own way."""
    penstock = logging.getLogger("penstock")
    before = penstock.level, list(penstock.handlers)
    file = io.StringIO()
    with logging_to(file, "plain", LINES_MAX):
        pass
    assert (penstock.level, list(penstock.handlers)) == before
    LOGGER.warning("after")
    assert file.getvalue() == ""


def test_one_client_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile client makes lines as fast as it can connect; those about others, and of other kinds, are written."""
    now = 0.0
    monkeypatch.setattr("penstock.server._logs.time", SimpleNamespace(monotonic=lambda: now))
    file = io.StringIO()
    with logging_to(file, "json", LINES_MAX):
        for port in range(1000):
            LOGGER.info("closing a connection", extra={"peer": f"10.0.0.1:{port}"})
        LOGGER.info("closing a connection", extra={"peer": "10.0.0.2:1"})
        LOGGER.warning("something else")
        now = 61.0
        LOGGER.info("closing a connection", extra={"peer": "10.0.0.1:1"})
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line.get("peer") for line in lines[2:]] == ["10.0.0.2:1", None, "10.0.0.1:1"]
    assert [line.get("left_out") for line in lines[2:]] == [998, None, None]


def test_many_clients_do_not_fill_the_log_together() -> None:
    """One that has very many addresses counts as many clients."""
    file = io.StringIO()
    with logging_to(file, "plain", LINES_MAX):
        for number in range(1000):
            LOGGER.info("closing a connection", extra={"peer": f"10.0.{number}.1:5"})
    assert len(file.getvalue().splitlines()) == LINES_MAX


@pytest.mark.parametrize("form", ["json", "plain"])
def test_no_line_is_longer_than_anybody_reads(form: str) -> None:
    """What a client sends may be megabytes long, and be part of an error."""
    file = io.StringIO()
    with logging_to(file, "json" if form == "json" else "plain", LINES_MAX):
        try:
            int("x" * (1 << 20))
        except ValueError:
            LOGGER.exception("a call failed: %s", "y" * (1 << 20), extra={"user": "z" * (1 << 20)})
    assert 1 << 14 < len(file.getvalue()) < 1 << 17


def test_headers_that_grpc_does_not_understand_are_not_logged(tmp_path: Path) -> None:
    """It writes a line for each of them, past our limit: an unauthenticated client could fill the disk."""
    log = tmp_path / "log"
    with server_apart(tmp_path / "data", log, anonymous=True) as (port, _):
        unknown = b"\0\x07:status\x01x"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(PREFACE + frame(SETTINGS, 0, b"") + frame(HEADERS, 1, 100 * unknown, END_HEADERS))
            connection.sendall(frame(PING, 0, bytes(8)))
            received = b""
            while bytes(8) not in received and (more := connection.recv(65_536)):
                received += more
        with penstock.connect(f"penstock://127.0.0.1:{port}") as store:
            assert store.streams() == []
    assert [line for line in log.read_text().splitlines() if "penstock.server" not in line] == []
