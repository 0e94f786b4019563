"""What the tests of the server share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import argon2
import pytest

from penstock.embedded import open_store
from penstock.testing import ManualClock
from tests.server.owned import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.server import Server
    from penstock.stream import Engine


@pytest.fixture(autouse=True)
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a password cost little: that it costs much otherwise is tested where it matters."""
    cheap = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", cheap)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """A server of the folder that the module's own fixture makes."""
    with serving(folder) as server:
        yield server


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store in memory, at a time that stands still."""
    with open_store("memory:", clock=ManualClock()) as store:
        yield store
