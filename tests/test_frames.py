"""Frames over real sockets: what is sent is received, whatever the pieces; what is not a frame is refused."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import pytest

from penstock.frames import FrameConnection, FrameError, pack_frame


def joined(*parts: bytes) -> bytes:
    return b"".join(pack_frame(*parts))


def test_frames_survive_any_pieces_that_tcp_makes_of_them() -> None:
    """TCP has no messages: a frame may arrive byte by byte, or with the next one, or be larger than any buffer."""
    near, far = socket.socketpair()
    large = bytes(range(256)) * 4000
    sent = joined(b"first") + joined(b"second", b"data", b"", b"more") + joined(b"third", large)
    received = []
    with closing(near), closing(FrameConnection(far)) as connection:
        for size in (1, 7, 40, 100_000):
            for start in range(0, len(sent), size):
                if start > 200 and size < 100:
                    break
                near.sendall(sent[start : start + size])
                while (frame := connection.receive()) is not None:
                    received.append((bytes(frame.header), bytes(frame.payload)))
            if size < 100:
                rest = sent[start:]
                near.setblocking(True)
                for begin in range(0, len(rest), 50_000):
                    near.sendall(rest[begin : begin + 50_000])
                    while (frame := connection.receive()) is not None:
                        received.append((bytes(frame.header), bytes(frame.payload)))
    assert received == [(b"first", b""), (b"second", b"datamore"), (b"third", large)] * 4


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not the protocol"),
        (b"PPL1" + (1 << 30).to_bytes(4, "big") + bytes(8), "too large"),
        (b"PPL1" + (10).to_bytes(4, "big") + (1 << 31).to_bytes(4, "big") + bytes(4), "too large"),
        (b"PPL1" + bytes(12), "too large"),
        (joined(b"header", b"data")[:-1] + b"!", "checksum"),
    ],
)
def test_bytes_that_are_not_a_frame_are_refused_before_anything_is_allocated(garbage: bytes, reason: str) -> None:
    """Sizes of a peer that means harm, or does not know the protocol, must not become memory."""
    near, far = socket.socketpair()
    with closing(near), closing(FrameConnection(far)) as connection:
        near.sendall(garbage)
        with pytest.raises(FrameError, match=reason):
            connection.receive()
        near.shutdown(socket.SHUT_RDWR)


def test_a_peer_that_takes_nothing_is_given_up() -> None:
    """A caller that sends to a stopped server must not wait for it forever."""
    near, far = socket.socketpair()
    with closing(near), closing(FrameConnection(far)) as connection, pytest.raises(TimeoutError):
        connection.send(pack_frame(b"header", bytes(64 << 20)), timeout_s=0.05)


def test_a_server_that_waits_gets_frames_however_they_come_and_learns_that_the_client_is_gone() -> None:
    """It waits in one call of the system: a frame of two pieces must not be lost there, nor the second of two."""
    near, far = socket.socketpair()
    large = bytes(300_000)
    pieces = [joined(b"first") + joined(b"second"), joined(b"third", large)[:100], joined(b"third", large)[100:]]

    def send() -> None:
        for piece in pieces:
            near.sendall(piece)
        near.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    with closing(near), closing(FrameConnection(far)) as connection:
        sender.start()
        received = [connection.await_frame() for _ in range(3)]
        assert [(frame.header, len(frame.payload)) for frame in received] == [
            (b"first", 0), (b"second", 0), (b"third", len(large))
        ]  # fmt: skip
        with pytest.raises(EOFError):
            connection.await_frame()
        sender.join()


def test_after_a_short_read_the_next_look_finds_what_has_come_since() -> None:
    """A read that empties the connection saves the next one, but only once: else a frame would be left for ever."""
    near, far = socket.socketpair()
    with closing(near), closing(FrameConnection(far)) as connection:
        near.sendall(joined(b"first"))
        assert connection.receive() is not None
        near.sendall(joined(b"second"))
        assert connection.receive() is None
        frame = connection.receive()
        assert frame is not None
        assert frame.header == b"second"
        near.close()
        assert connection.receive() is None
        with pytest.raises(EOFError):
            connection.receive()
