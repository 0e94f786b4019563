"""What the tests of FutoIn share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import argon2
import pytest

from penstock.server import Config, Server
from tests.events import javascript

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a password cost little: that it costs much otherwise is tested where it matters."""
    cheap = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", cheap)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server without users."""
    with Server(Config(store=str(tmp_path / "data"), anonymous=True, port=0, http_port=0)) as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    """The address of the server's own event stream."""
    return f"ws://127.0.0.1:{server.http_port}/futoin"


@pytest.fixture(scope="session")
def node() -> Iterator[javascript.Reference]:
    """The reference implementation of FTN18."""
    if reason := javascript.missing():
        pytest.skip(reason)
    with javascript.reference() as node:
        yield node
