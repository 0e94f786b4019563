"""Appends of all writers of a channel: small blocks that are ready at the same time travel in one message.

A few put streams are shared. A thread with blocks to send takes one that is free, and sends what it has at once. While
all are in use, blocks wait. The thread that gets its answer hands its stream to the first one that waits, which sends
the blocks of all of them. So a single writer is as fast as alone, and the more there are, the less each of them costs.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from pyarrow import flight

from penstock.errors import ServerError
from penstock.wire import APPENDS, SHARED_HEAD_SIZE, SHARED_SIZE_MAX, Acknowledgement, pack, pack_shared, unpack
from penstock.wire.operations import writers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.ports import Bytes

__all__ = ["AppendStream", "FlightStream", "SharedAppends"]

_STREAMS_MAX: Final = 2


class _Parcel:
    """The blocks of one writer; ``turn`` is released when they are answered, or their thread is to send."""

    __slots__ = ("answer", "blocks", "error", "is_to_send", "size", "turn", "writer")

    def __init__(self, writer: int, blocks: Sequence[bytes]) -> None:
        self.writer, self.blocks = writer, blocks
        self.size = sum(map(len, blocks)) + SHARED_HEAD_SIZE * len(blocks)
        self.answer: Acknowledgement | None = None
        self.error: BaseException | None = None
        self.is_to_send = False
        self.turn = threading.Lock()
        self.turn.acquire()


class AppendStream(Protocol):
    """A way to the server for the small blocks of a session."""

    def exchange(self, message: bytes) -> Bytes:
        """Send a message; return the answer."""

    def close(self) -> None:
        """End the stream, which may be lost."""


class FlightStream:
    """A put stream for small blocks of a session."""

    def __init__(self, client: flight.FlightClient, session_id: str) -> None:
        command = pack([writers.AppendShared.operation, session_id, None])
        self._put, self._acks = client.do_put(flight.FlightDescriptor.for_command(command), APPENDS)

    def exchange(self, message: bytes) -> Bytes:
        """Send a message; return the answer."""
        self._put.write_metadata(message)
        answer = self._acks.read()
        if answer is None:
            raise flight.FlightUnavailableError("the server has ended the stream")
        data: bytes = answer.to_pybytes()
        return data

    def close(self) -> None:
        """End the stream, which may be lost."""
        with suppress(pa.ArrowException, OSError):
            self._put.close()


class SharedAppends:
    """The streams of a session that its writers share.

    ``open_stream`` returns the stream for a message: the idle one that it gets, or a better one that it opens, if the
    idle one was opened when that could not be had. It closes an idle stream that it does not return.
    """

    def __init__(self, open_stream: Callable[[AppendStream | None], AppendStream]) -> None:
        self._open_stream = open_stream
        self._lock = threading.Lock()
        self._waiting: list[_Parcel] = []  # only while all streams are in use
        self._idle: list[AppendStream] = []
        self._in_use = 0
        self._is_closed = False

    def exchange(self, writer: int, blocks: Sequence[bytes]) -> Acknowledgement:
        """Send small blocks of a writer; return the answer of the server. Raises what Flight does."""
        parcel = _Parcel(writer, blocks)
        with self._lock:
            parcel.is_to_send = self._in_use < _STREAMS_MAX
            if parcel.is_to_send:
                self._in_use += 1
            else:
                self._waiting.append(parcel)
        if not parcel.is_to_send:
            parcel.turn.acquire()
        if parcel.is_to_send:
            self._send(parcel)
        if parcel.error is not None:
            raise parcel.error
        assert parcel.answer is not None, "it was answered"
        return parcel.answer

    def _send(self, first: _Parcel) -> None:
        """Send the parcel of this thread, and those that wait, on a free stream; then hand that on."""
        with self._lock:
            parcels = [first, *self._take(SHARED_SIZE_MAX - first.size)]
            stream = self._idle.pop() if self._idle else None
        try:
            stream = self._open_stream(stream)
            for parcel, answer in zip(parcels, _answers(stream, parcels), strict=True):
                parcel.answer = answer
        except BaseException as error:  # noqa: BLE001 - each of the threads raises it
            for parcel in parcels:
                parcel.error = error
            _close(stream)
            stream = None
        following = self._hand_on(stream)
        for parcel in (*following, *parcels[1:]):
            parcel.turn.release()

    def _take(self, size_max: int) -> list[_Parcel]:
        """Take so many bytes of parcels that wait."""
        if not self._waiting:
            return []
        count = sum(size <= size_max for size in accumulate(parcel.size for parcel in self._waiting))
        parcels, self._waiting = self._waiting[:count], self._waiting[count:]
        return parcels

    def _hand_on(self, stream: AppendStream | None) -> list[_Parcel]:
        """Give a stream back; return the parcel whose thread is to send now, if one waits."""
        with self._lock:
            if stream is not None and not self._is_closed:
                self._idle.append(stream)
                stream = None
            following, self._waiting = self._waiting[:1], self._waiting[1:]
            for parcel in following:
                parcel.is_to_send = True
            self._in_use -= not following
        _close(stream)
        return following

    def close(self) -> None:
        """Close the streams; one that is in use is closed by the thread that uses it."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for stream in idle:
            _close(stream)


def _answers(stream: AppendStream, parcels: Sequence[_Parcel]) -> list[Acknowledgement]:
    answer = stream.exchange(pack_shared([(parcel.writer, block) for parcel in parcels for block in parcel.blocks]))
    found: list[Acknowledgement] = unpack(answer, list[Acknowledgement])
    if len(found) != len(parcels):
        raise ServerError(f"the server acknowledged the blocks of {len(found)} writers, not of {len(parcels)}")
    return found


def _close(stream: AppendStream | None) -> None:
    if stream is not None:
        stream.close()
