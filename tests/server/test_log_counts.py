"""What the server logs as an error or a warning is counted, and an internal error of any call is logged as one."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

import penstock
from penstock.console._calls import CALLS
from penstock.errors import PenstockError, ServerError
from penstock.server import Config, Server, _http
from penstock.server._log_counts import LogCounter, LogCounts, LoggedError, counting_logs
from penstock.server._logs import logging_to
from penstock.server._operations import HANDLERS
from penstock.wire.operations import streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOGGER = logging.getLogger("penstock.server")
INSIDE = "what only the log may say"


def broken(*_: object) -> None:
    raise RuntimeError(INSIDE)


def get(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"{server.http_address}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def logged(server: Server) -> dict[str, Any]:
    """Return the counts as the health page of the console gets them."""
    found: dict[str, Any] = json.loads(get(server, "/console/api/health"))["logged"]
    return found


# Counting


def test_errors_and_warnings_are_counted_apart() -> None:
    """One warning says little, one error is to be looked into."""
    with counting_logs() as counter:
        LOGGER.info("serving")
        LOGGER.warning("a lease cannot be renewed")
        LOGGER.warning("a lease cannot be renewed")
        LOGGER.critical("the store stops")
        assert counter.counts[:2] == (1, 2)
    LOGGER.error("after")
    assert counter.counts[:2] == (1, 2)
    assert counter not in logging.getLogger("penstock").handlers


def test_the_last_error_is_kept_with_its_time_and_its_exception() -> None:
    """A message that only says that a call failed leads nowhere."""
    record = logging.makeLogRecord({"levelno": logging.ERROR, "created": 12.5, "msg": "%s failed", "args": ("it",)})
    with counting_logs() as counter:
        counter.handle(record)
        assert counter.counts == LogCounts(1, 0, LoggedError(12.5, "it failed"))
        try:
            broken()
        except RuntimeError:
            LOGGER.exception("a call failed")
    last = counter.counts.last_error
    assert last is not None
    assert last.text == f"a call failed: RuntimeError: {INSIDE}"


def test_the_text_of_an_error_is_short_and_printable() -> None:
    """It may hold what a client has sent, of any size; a page and its JSON show it."""
    sent = "\x1b[2J\ud800" + "x" * 100_000 + "\nsecond line"
    counter = LogCounter()
    counter.handle(logging.makeLogRecord({"levelno": logging.ERROR, "msg": "no user %s", "args": (sent,)}))
    last = counter.counts.last_error
    assert last is not None
    assert last.text.startswith("no user \\x1b[2J\\ud800xxx")
    assert last.text.endswith("x…")
    assert len(last.text) == 200


def test_a_record_whose_arguments_do_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is our mistake, and a second error about it must not end the call that logs."""
    monkeypatch.setattr(logging, "raiseExceptions", False)  # pytest's own handler would raise
    with counting_logs() as counter:
        LOGGER.error("%d failed", "it")
    assert counter.counts.last_error is not None
    assert counter.counts.last_error.text == "%d failed"


def test_lines_that_the_log_leaves_out_are_counted() -> None:
    """A burst of errors is short in the log, and must not look small."""
    file = io.StringIO()
    with logging_to(file, "plain", 2), counting_logs() as counter:
        for _ in range(50):
            LOGGER.error("failed")
    assert len(file.getvalue().splitlines()) == 2
    assert counter.counts.errors == 50


def test_a_program_without_logging_still_gets_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python prints what no handler takes; a server in a program must not silence that, nor say it twice."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with counting_logs() as first, counting_logs() as second:
        LOGGER.warning("there are no users yet")
    assert capsys.readouterr().err == "there are no users yet\n"
    assert first.counts.warnings == second.counts.warnings == 1
    with logging_to(io.StringIO(), "plain", 20), counting_logs():
        LOGGER.warning("there are no users yet")
    assert capsys.readouterr().err == ""


# Internal errors of calls


def fail_over_flight(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[Any, Any] = HANDLERS
    monkeypatch.setitem(handlers, streams.ListStreams, broken)
    with penstock.connect(server.address) as store, pytest.raises(ServerError) as raised:
        store.streams()
    assert INSIDE not in str(raised.value)


def fail_over_http(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_http, "generate_latest", broken)
        with pytest.raises(HTTPError) as raised:
            get(server, "/metrics")
    assert (raised.value.code, INSIDE in raised.value.read().decode()) == (500, False)


def fail_in_the_console(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALLS, "streams", broken)
    with pytest.raises(HTTPError) as raised:
        get(server, "/console/api/streams")
    answer = json.loads(raised.value.read())
    assert (raised.value.code, answer["error"]) == (500, "InternalError")
    assert "its log says why" in answer["message"]
    assert raised.value.headers["Cache-Control"] == "no-store"


def fail_over_futoin(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.events._service.EventService.add", broken)
    call = {"f": "futoin.evt.gen:1.0:addEvent", "p": {"type": "T", "data": 1}, "rid": "C1"}
    request = urllib.request.Request(f"{server.http_address}/futoin", json.dumps(call).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.loads(answer.read())["e"] == "InternalError"


@pytest.mark.parametrize("fail", [fail_over_flight, fail_over_http, fail_in_the_console, fail_over_futoin])
def test_an_internal_error_of_a_call_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Server, pytest.MonkeyPatch], None]
) -> None:
    """The client learns that the server failed, the administrator why: on the health page, in metrics, in the log."""
    with Server(Config(store=str(tmp_path), port=0, http_port=0, anonymous=True)) as server:
        assert logged(server) == {"errors": 0, "warnings": 0, "last_error": None}
        fail(server, monkeypatch)
        found = logged(server)
        assert found["errors"] == 1
        assert f"RuntimeError: {INSIDE}" in found["last_error"]["text"]
        assert found["last_error"]["at_ms"] > 1.7e12
        assert 'penstock_log_records_total{level="error"} 1.0\n' in get(server, "/metrics")


def test_a_mistake_of_a_client_is_no_error_of_the_server(tmp_path: Path) -> None:
    """An alarm that clients can set off is switched off."""
    with Server(Config(store=str(tmp_path), port=0, http_port=0, anonymous=True)) as server:
        with penstock.connect(server.address) as store, pytest.raises(PenstockError):
            store.stream("no/such")
        for path in ("/console/api/stream?name=no/such", "/console/api/events", "/no/such"):
            with pytest.raises(HTTPError):
                get(server, path)
        assert logged(server)["errors"] == 0
