"""A server that does not answer: who gave a time to wait gets it back, and who goes silently is missed."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.client._address import _ANSWER_MS
from penstock.errors import CheckpointFailed
from penstock.server import Config, Server
from tests.server.apart import server_apart, suspend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STREAM: Final = "plant/readings"
SECONDS_MAX: Final = 20.0
"""How long a call may take that has a tenth of a second: a machine may be busy, but a stopped server stays stopped."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for a call that may not come back."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process do nothing for a while."""
    suspend(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RemoteStore, int]]:
    """A client, with a stream and a group, and the process of its server."""
    with (
        server_apart(tmp_path / "data", anonymous=True) as (port, pid),
        penstock.connect(f"penstock://127.0.0.1:{port}") as store,
    ):
        store.create_stream(STREAM)
        store.create_reader_group("group", [STREAM])
        assert isinstance(store, RemoteStore)
        yield store, pid


@pytest.mark.parametrize("how", ["read_next_event", "read_batch", "read_next_event_as_stream"])
def test_a_reader_comes_back_in_time_from_a_server_that_does_not_answer(
    served: tuple[RemoteStore, int], pool: ThreadPoolExecutor, how: str
) -> None:
    """And loses nothing by it: what was asked for is asked for again."""
    store, pid = served
    with store.writer(STREAM) as writer, store.reader_group("group").reader("reader") as reader:
        writer.write_event(b"a").result()
        read: Callable[..., object] = getattr(reader, how)
        with stopped(pid):
            assert pool.submit(read, timeout=0.1).result(SECONDS_MAX) is None
        assert read(timeout=SECONDS_MAX) is not None
        with stopped(pid):
            assert pool.submit(read, timeout=0.1).result(SECONDS_MAX) is None
        writer.write_event(b"b").result()
        assert read(timeout=SECONDS_MAX) is not None
        assert read(timeout=0) is None
        writer.write_event(b"c").result(-5)
        while read(timeout=-5) is None:
            pass  # it is told a moment later that there is something


def test_a_reader_whose_segment_ended_meanwhile_is_given_nothing_again(
    served: tuple[RemoteStore, int], pool: ThreadPoolExecutor
) -> None:
    """That it was read to its end has to be told until somebody hears it."""
    store, pid = served
    with store.writer(STREAM) as writer, store.reader_group("group").reader("reader") as reader:
        writer.write_event(b"a").result()
        assert reader.read_next_event(timeout=SECONDS_MAX) is not None
        store.seal_stream(STREAM)
        with stopped(pid):
            assert pool.submit(reader.read_next_event, timeout=0.1).result(SECONDS_MAX) is None
        assert reader.read_next_event(timeout=SECONDS_MAX) is None
        assert reader.finished


def test_an_acknowledgement_is_not_waited_for_longer_than_told(
    served: tuple[RemoteStore, int], pool: ThreadPoolExecutor
) -> None:
    """The event is under way all the same, and comes once."""
    store, pid = served
    with store.writer(STREAM, "writer") as writer:
        writer.write_event(b"a").result(0)  # a moment is always there
        with stopped(pid):
            waiting = pool.submit(
                lambda: writer.write_event(b"b").result(0.1)
            )  # which sends it off before the pump does
            with pytest.raises(TimeoutError, match="no acknowledgement"):
                waiting.result(SECONDS_MAX)
        writer.flush()
    (batch,) = store.read(STREAM)
    assert batch["event"].to_pylist() == [b"a", b"b"]


def test_an_acknowledgement_may_be_waited_for_when_another_is_there(served: tuple[RemoteStore, int]) -> None:
    """The callback may run in the thread that sends; no other thread would send."""
    store, _ = served
    is_there = threading.Event()
    with store.writer(STREAM) as writer:

        def write_another(_: object) -> None:
            writer.write_event(b"b").result(SECONDS_MAX)
            is_there.set()

        writer.write_event(b"a").add_done_callback(write_another)  # which the pump sends off
        assert is_there.wait(SECONDS_MAX / 2)
    assert sum(batch.num_rows for batch in store.read(STREAM)) == 2


def test_a_checkpoint_fails_in_time(served: tuple[RemoteStore, int], pool: ThreadPoolExecutor) -> None:
    """With the error that it fails with otherwise."""
    store, pid = served
    group = store.reader_group("group")
    with stopped(pid), pytest.raises(CheckpointFailed, match="did not answer"):
        pool.submit(group.checkpoint, "c", 0.1).result(SECONDS_MAX)


def test_a_machine_that_is_gone_is_noticed(tmp_path: Path) -> None:
    """Nothing says so: what is sent is not confirmed any more, for which the system waits a quarter of an hour."""
    config = Config(store=str(tmp_path / "data"), port=0, http_port=0, anonymous=True)
    with Server(config) as server, penstock.connect(server.address):
        assert _ANSWER_MS in {_user_timeout(int(name), server.port) for name in os.listdir("/proc/self/fd")}


def _user_timeout(number: int, port: int) -> int | None:
    """Return how long a connection to a port waits for what it sent to be confirmed."""
    try:
        with socket.socket(fileno=os.dup(number)) as one:
            is_ours = one.family in {socket.AF_INET, socket.AF_INET6} and one.getpeername()[1] == port
            return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) if is_ours else None
    except OSError:  # no socket, or gone
        return None
