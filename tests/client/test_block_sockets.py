"""Connections for blocks of a client: what becomes of them when the port cannot be reached for a while."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from penstock.client import _block_sockets
from penstock.client._block_sockets import _PAUSE_MAX_S, _PAUSE_S, IN_USE_MAX, BlockSockets
from penstock.deadlines import ANSWER_SLACK_S, within
from penstock.frames import FrameConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.wire import BlockAccess

HOST: Final = "127.0.0.1"
ACCESS: Final = (1, "session", bytes(32))


class Port:
    """The port of a server, which a test opens and closes, and a clock."""

    def __init__(self) -> None:
        self.is_open, self.delay_s, self.now = True, 0.0, 0.0
        self.attempts: list[float] = []  # the seconds that each may take
        self._ends: list[socket.socket] = []

    def opened(self, _host: str, _access: BlockAccess, seconds: float) -> FrameConnection:
        """Connect, in place of the function of that name."""
        self.attempts.append(seconds)
        time.sleep(min(self.delay_s, seconds))
        if not self.is_open or self.delay_s > seconds:
            raise ConnectionResetError("the other side has closed the connection")
        ours, theirs = socket.socketpair()
        self._ends.append(theirs)
        return FrameConnection(ours, checks_data=False)

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    port = Port()
    monkeypatch.setattr(_block_sockets, "_opened", port.opened)
    yield port
    port.close()


@pytest.fixture
def sockets(port: Port) -> Iterator[BlockSockets]:
    sockets = BlockSockets(HOST, ACCESS, now=lambda: port.now)
    yield sockets
    sockets.close()


def is_there(sockets: BlockSockets) -> bool:
    """Return whether there is a connection, which is closed again."""
    found = sockets.take()
    if found is not None:
        found.close()
    return found is not None


def test_a_port_that_could_not_be_reached_is_tried_again_after_a_pause(port: Port, sockets: BlockSockets) -> None:
    """A server with too many connections has fewer of them later; a channel may last for days."""
    port.is_open = False
    assert not is_there(sockets)
    port.is_open = True
    assert not is_there(sockets)
    assert len(port.attempts) == 1, "each would cost time"
    port.now += _PAUSE_S
    assert is_there(sockets)
    assert is_there(sockets)


def test_pauses_become_longer_and_are_short_again_after_a_success(port: Port, sockets: BlockSockets) -> None:
    """A client behind a firewall would else lose a second again and again."""
    port.is_open = False
    for _ in range(12):
        port.now += _PAUSE_MAX_S
        assert not is_there(sockets)
    assert len(port.attempts) == 12
    port.now += _PAUSE_MAX_S - 1
    assert not is_there(sockets)
    assert len(port.attempts) == 12
    port.is_open = True
    port.now += 1
    assert is_there(sockets)
    port.is_open = False
    assert not is_there(sockets)
    port.is_open = True
    port.now += _PAUSE_S
    assert is_there(sockets)


def test_threads_that_fail_together_cost_one_pause_and_one_of_them_tries_again(
    port: Port, sockets: BlockSockets
) -> None:
    """Or the first reads of many threads would count as many failures in a row."""
    port.is_open, port.delay_s = False, 0.2
    barrier = threading.Barrier(IN_USE_MAX)

    def take(_: int) -> bool:
        barrier.wait()
        return is_there(sockets)

    with ThreadPoolExecutor(IN_USE_MAX) as threads:
        assert not any(threads.map(take, range(IN_USE_MAX)))
        first = len(port.attempts)
        port.now += _PAUSE_S
        assert not any(threads.map(take, range(IN_USE_MAX)))
    assert len(port.attempts) == first + 1
    port.is_open, port.delay_s = True, 0.0
    port.now += 2 * _PAUSE_S
    assert is_there(sockets)


def test_a_request_near_its_deadline_goes_over_flight_and_is_no_failure(port: Port, sockets: BlockSockets) -> None:
    """It would not learn whether the port can be reached; the next request has more time."""
    with within(time.monotonic()):
        time.sleep(ANSWER_SLACK_S * 0.7)
        assert not is_there(sockets)
    assert port.attempts == []
    assert is_there(sockets)


def test_an_attempt_leaves_time_for_flight(port: Port, sockets: BlockSockets) -> None:
    """Behind a firewall that answers nothing, each read with a short timeout would else come to nothing."""
    port.delay_s = 10.0
    with within(time.monotonic()):
        assert not is_there(sockets)
        assert not is_there(sockets)
    [seconds] = port.attempts
    assert seconds <= ANSWER_SLACK_S / 2
