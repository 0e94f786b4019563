"""Large appends of a plog server that follow each other share a sync, and one alone does not wait for others."""

from __future__ import annotations

import secrets
import socket
import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.frames import FrameConnection, pack_frame
from penstock.plog.replicated import (
    PROTOCOL,
    AppendReplica,
    Hello,
    ServerAccess,
    encode_header,
)
from penstock.plog.replicated._link import open_session
from penstock.plog.replicated._messages import CreateReplica
from penstock.plog.server import PlogServer, PlogServerLimits, ServerFolder
from penstock.plog.server._connection import ClientConnection
from penstock.plog.server._limits import RequestBudget
from penstock.server._addresses import listen
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


LARGE: Final = 150 << 10
WAIT_S: Final = 2.0  # for the next append: a thousand times as long as usual, and much longer than a sync


@pytest.fixture
def company_s() -> float:
    return WAIT_S


@pytest.fixture
def server(tmp_path: Path, company_s: float) -> Iterator[PlogServer]:
    folder = ServerFolder(tmp_path / "server", cluster="local", group="main")
    with PlogServer(folder, listen("127.0.0.1", 0), limits=PlogServerLimits(company_s_max=company_s)) as server:
        yield server


class Owner:
    """A session with a plog of its own."""

    def __init__(self, connection: FrameConnection) -> None:
        self._connection, self._uid = connection, secrets.token_bytes(16)
        self._number, self._offset = 1, 0
        self._send(CreateReplica(self._uid, 16 << 20))
        self.await_answers(1)

    def _send(self, request: Any, *data: bytes) -> None:  # noqa: ANN401 - any request
        self._connection.send(self._frame(request, *data), timeout_s=20)

    def _frame(self, request: Any, *data: bytes) -> list[Any]:  # noqa: ANN401 - any request
        self._number += 1
        return pack_frame(encode_header(self._number, request), *data)

    def append(self, size: int, count: int = 1) -> None:
        """Send appends, all at once."""
        frames = []
        for _ in range(count):
            frames += self._frame(AppendReplica(self._uid, self._offset, size), bytes(size))
            self._offset += size
        self._connection.send([b"".join(frames)], timeout_s=20)

    def trickle(self, size: int) -> Iterator[None]:
        """Send an append byte by byte."""
        for byte in b"".join(self._frame(AppendReplica(self._uid, self._offset, size), bytes(size))):
            self._connection.send([bytes([byte])], timeout_s=20)
            yield

    def await_answers(self, count: int) -> None:
        for _ in range(count):
            assert self.is_answered(30), "no answer"

    def is_answered(self, timeout_s: float) -> bool:
        """Take an answer if it comes in time."""
        while self._connection.receive() is None:
            if not self._connection.wait(timeout_s):
                return False
        return True


@pytest.fixture
def owner(server: PlogServer) -> Iterator[Owner]:
    hello = Hello(PROTOCOL, "local", "main", "main", 1, b"o" * 16, 1)
    connection, _ = open_session(f"127.0.0.1:{server.port}", hello, ServerAccess())
    with closing(connection):
        yield Owner(connection)


def syncs(server: PlogServer) -> int:
    return server.folder.partitions()["main"].replicas.syncs.count


def test_a_large_append_that_comes_alone_does_not_wait_for_another(server: PlogServer, owner: Owner) -> None:
    """A program that waits for each of its batches would else wait for nothing, each time."""
    before = syncs(server)
    for _ in range(3):
        owner.append(LARGE)
        assert owner.is_answered(WAIT_S / 2)
    assert syncs(server) == before + 3


def has_begun(server: PlogServer, changes: int) -> bool:
    return server.appended()[0] == changes


def share_a_sync(server: PlogServer, owner: Owner) -> bool:
    """Return whether appends share a sync that come one by one, after a run of as many that came at once."""
    for _ in range(3):
        owner.append(LARGE)
    owner.await_answers(3)
    before, begun = syncs(server), server.appended()[0]
    for number in range(1, 4):
        owner.append(LARGE)
        eventually(partial(has_begun, server, begun + number))
        if number < 3 and owner.is_answered(WAIT_S / 20):  # those before did not all come in time
            owner.await_answers(number - 1)
            return False
    owner.await_answers(3)
    return syncs(server) == before + 1


def test_large_appends_that_follow_each_other_share_a_sync(server: PlogServer, owner: Owner) -> None:
    """Each sync makes the disk finish what it has begun: three replicas on one disk are slower with one each."""
    assert any(share_a_sync(server, owner) for _ in range(10))


def expect_three(owner: Owner) -> None:
    """Let the server expect runs of three large appends."""
    owner.append(LARGE, 3)
    owner.await_answers(3)


def test_a_thousand_small_appends_behind_a_large_one_do_not_keep_it_waiting(owner: Owner) -> None:
    """The server takes no more then, so nothing can come that it waits for: it once looked for it for ever."""
    expect_three(owner)
    owner.append(LARGE)
    owner.append(10, 2500)
    owner.await_answers(2501)


@pytest.mark.parametrize("company_s", [0.01])
def test_an_append_that_comes_byte_by_byte_does_not_keep_those_before_it_waiting(owner: Owner) -> None:
    """Over a slow link each byte would begin the wait anew, until the owner gives the server up."""
    expect_three(owner)
    owner.append(LARGE)
    assert any(owner.is_answered(0.001) for _ in owner.trickle(LARGE))


def test_an_append_that_has_begun_is_carried_out_though_its_client_goes_while_it_waits_for_budget(
    tmp_path: Path,
) -> None:
    """The next session asks how long the replica is, and relies on it that no append is half done."""
    folder = ServerFolder(tmp_path / "server", cluster="local", group="main")
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGE)
    client, frames, first, second = FrameConnection(near), FrameConnection(far), b"1" * 16, b"2" * 16
    budget = RequestBudget(LARGE + 1000)  # for one of the appends
    served = ClientConnection(frames, folder, limits=PlogServerLimits(), budget=budget, check_user=None, peer="test")
    thread = threading.Thread(target=served.serve)
    thread.start()
    hello = Hello(PROTOCOL, "local", "main", "main", 1, b"o" * 16, 1)
    creations = [encode_header(2 + place, CreateReplica(uid, LARGE)) for place, uid in enumerate((first, second))]
    for header in (encode_header(1, hello), *creations):
        client.send(pack_frame(header), timeout_s=20)
        client.await_frame()
    near.shutdown(socket.SHUT_RD)  # no answer reaches it any more
    headers = [encode_header(4 + place, AppendReplica(uid, 0, LARGE)) for place, uid in enumerate((first, second))]
    client.send([b"".join(part for header in headers for part in pack_frame(header, bytes(LARGE)))], timeout_s=20)
    thread.join(30)
    replicas = folder.partitions()["main"].replicas
    assert [replicas.info(replicas.plog_id(uid.hex())).length for uid in (first, second)] == [LARGE, LARGE]
    client.close()
    frames.close()
    folder.close()
