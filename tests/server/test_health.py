"""Whether the server is fit to work."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import DiskFailed
from penstock.server import _health
from penstock.server._health import Health
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from penstock.stream import Engine


@pytest.fixture
def health(store: Engine, tmp_path: Path) -> Health:
    return Health(store, tmp_path)


def fail_sync(_: int) -> None:
    raise OSError(5, "Input/output error")


def next_second(store: Engine) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(1)


def test_fit_server_has_no_trouble(health: Health, tmp_path: Path) -> None:
    """And leaves nothing behind."""
    assert health.trouble() is None
    assert list(tmp_path.iterdir()) == []


def test_disk_that_takes_nothing_is_trouble(
    health: Health, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before anybody wanted to write; when it is well again, so is the server."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail_sync)
        assert health.trouble() == f"{tmp_path} cannot be written: Input/output error"
    next_second(store)
    assert health.trouble() is None


def test_folder_that_is_gone_is_trouble(store: Engine) -> None:
    """Somebody took the disk away."""
    assert "No such file" in str(Health(store, Path("/nowhere")).trouble())


def test_store_that_stopped_is_trouble(health: Health, store: Engine) -> None:
    """After a failed sync it takes no more writes, although the disk may work again."""
    store._manager.plogs._journal.stop(OSError(5, "Input/output error"), "journal-0")  # type: ignore[attr-defined]
    assert "the store takes no more writes" in str(health.trouble())
    with pytest.raises(DiskFailed):
        store.close()


def test_closed_store_is_trouble(health: Health, store: Engine) -> None:
    """No client is served any more."""
    store.close()
    assert health.trouble() == "the store is closed: open it again"


def test_many_questions_cost_one_look_a_second(health: Health, store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask, and a sync is not cheap."""
    looks: list[int] = []
    monkeypatch.setattr(os, "fdatasync", looks.append)
    for _ in range(10):
        assert health.trouble() is None
    assert len(looks) == 1
    next_second(store)
    health.trouble()
    assert len(looks) == 2


def test_clock_set_back_does_not_keep_an_old_answer(
    health: Health, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the server would be called well until the clock is where it was."""
    assert health.trouble() is None
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(-3600)
    store.clock.advance(60)
    monkeypatch.setattr(os, "fdatasync", fail_sync)
    assert health.trouble() is not None


def test_disk_that_hangs_is_trouble(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next check gets an answer, and does not hang, too."""
    monkeypatch.setattr(_health, "_PATIENCE_S", 0.01)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        hangs.set()
        assert goes_on.wait(30)

    monkeypatch.setattr(os, "fdatasync", hang)
    first = threading.Thread(target=health.trouble)
    first.start()
    assert hangs.wait(30)
    assert health.trouble() == "the disk has not answered for 0.01 s"
    goes_on.set()
    first.join()
    assert health.trouble() is None


def test_server_that_ends_says_so(health: Health) -> None:
    """No new client is sent to it then."""
    health.end()
    assert health.trouble() == "the server is shutting down"
