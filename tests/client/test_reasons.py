"""Why a server cannot be reached, in words."""

from __future__ import annotations

import socket

import pytest

from penstock.client._reasons import reason_in_words, without_context


def reason(told: str, *, tls: bool = True, tls_ca: str | None = None, port: int = 1) -> str:
    return reason_in_words(told, host="127.0.0.1", port=port, tls=tls, tls_ca=tls_ca)


@pytest.mark.parametrize(
    ("told", "advice"),
    [
        ("SSL routines::wrong version number", "tls=False"),
        ("Trying to connect an http1.x server", "HTTP"),
        ("missing selected ALPN property", "HTTP"),
        ("certificate verify failed: certificate has expired", "expired"),
        ("ipv4:127.0.0.1:1: Connection refused (111)", "Connection refused"),
        ("hostname lookup error", "name"),
        ("Hostname 127.0.0.1 not in peer certificate", "not for 127.0.0.1"),
    ],
)
def test_what_grpc_says_of_a_common_mistake_becomes_advice(told: str, advice: str) -> None:
    """Its words name its own source files, and not what to change."""
    assert advice in reason(told)
    assert told not in reason(told)


def test_a_certificate_that_is_not_trusted_names_the_one_that_was_given() -> None:
    """Otherwise one looks at the wrong file."""
    assert "mine.crt" in reason("certificate verify failed", tls_ca="mine.crt")
    assert "server.crt" in reason("certificate verify failed")


def test_anything_else_is_told_as_it_is() -> None:
    """A guess would hide what happened; and to find out, the client does not wait for a server that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert reason("the moon is full", tls=False, port=port) == "the moon is full"
    assert reason("the moon is full") == "the moon is full"


@pytest.mark.parametrize(
    ("told", "rest"),
    [
        ("no such place. gRPC client debug context: UNKNOWN:Error {grpc_status:14}", "no such place"),
        ("failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4: refused", "ipv4:1.2.3.4: refused"),
        ("Flight returned unavailable error, with message: closing", "closing"),
        ("plain", "plain"),
    ],
)
def test_what_only_developers_of_grpc_want_is_left_out(told: str, rest: str) -> None:
    """An error is one line that a user can read."""
    assert without_context(told) == rest
