"""Events as files whose methods are awaited: to be written, and to be read."""

from __future__ import annotations

import io
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Final

from penstock.aio._handle import AsyncHandle, ClosedAtEnd
from penstock.aio._threads import Turns
from penstock.errors import BadArgument, EventClosed
from penstock.stream import EventInputStream, EventOutputStream

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.aio._threads import Threads
    from penstock.model import EventPointer

__all__ = ["AsyncEventInputStream", "AsyncEventOutputStream"]

UNSENT_SIZE_MAX: Final = 1 << 20
READ_SIZE: Final = 1 << 20


class AsyncEventOutputStream(AsyncHandle[EventOutputStream], ClosedAtEnd):
    """An event being written, as a file. Nothing of it can be read before it is closed; an exception aborts it.

    ``pointer`` is where the event is, once it is closed and, in a transaction, committed.
    """

    def __init__(self, inner: EventOutputStream, threads: Threads) -> None:
        super().__init__(inner, threads)
        self._turns = Turns(threads)
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._sending: list[bytes] = []  # what a thread is going to write
        self._is_inside = False  # of its block
        self._is_ended = False

    @property
    def pointer(self) -> EventPointer:
        """Where the event is; an error before that is known."""
        return self._inner.pointer

    async def write(self, data: Buffer, /) -> int:
        """Take bytes; wait while more than 1 MiB of them has not been sent.

        If the task is cancelled meanwhile, the bytes are part of the event all the same.
        """
        self._threads.check(self)
        if self._is_ended:
            raise EventClosed("closed")
        part = data if type(data) is bytes else _as_bytes(data)
        self._unsent.append(part)
        self._unsent_size += len(part)
        if self._unsent_size > UNSENT_SIZE_MAX:
            await self._turns.call(self._send, begin=self._take)
        return len(part)

    def _take(self) -> None:
        self._sending += self._unsent
        self._unsent, self._unsent_size = [], 0

    def _send(self) -> None:
        """Write what was taken, in a thread; after an error the event is aborted, and nothing of it is needed."""
        parts, self._sending = self._sending, []
        for part in parts:
            self._inner.write(part)

    async def close(self) -> None:
        """Make the event part of the stream, or of its transaction; closing again does nothing.

        Inside the event's own ``async with`` block it only ends the writing: the end of the block decides.
        """
        self._threads.check(self)
        self._is_ended = True
        if not self._is_inside:
            await self._turns.call_to_the_end(self._send_and_close, begin=self._take)

    def _send_and_close(self) -> None:
        try:
            self._send()
        finally:
            self._inner.close()

    async def abort(self) -> None:
        """Drop the event; nothing of it is ever part of the stream."""
        self._threads.check(self)
        self._is_ended = True
        await self._turns.call_to_the_end(self._inner.abort, begin=self._unsent.clear)

    async def __aenter__(self) -> Self:
        """Close at the end of the block, or abort if it ends with an exception."""
        self._is_inside = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, or abort."""
        self._is_inside = False
        if error is None:
            await self.close()
        elif not self._threads.is_closed and not self._threads.is_abandoned(error):  # with the store it was aborted
            await self.abort()


def _as_bytes(data: Buffer) -> bytes:
    view = memoryview(data)
    return bytes(view.cast("B")) if view.nbytes else b""


class AsyncEventInputStream(AsyncHandle[EventInputStream], ClosedAtEnd):
    """An event, as a file to be read and sought in; iterating over it returns its bytes in pieces of up to 1 MiB.

    ``pointer`` is where it is, ``stream`` which stream it is of, ``size`` how many bytes it has. It also has the
    event's ``key``, its ``timestamp``, in milliseconds since 1970, its ``headers``, and ``header_pairs``, where a name
    may be there more than once.
    """

    def __init__(self, inner: EventInputStream, threads: Threads) -> None:
        super().__init__(inner, threads)
        self._turns = Turns(threads)
        self._offset = 0  # up to which a task got the bytes
        self.pointer, self.stream, self.size = inner.pointer, inner.stream, inner.size
        self.key, self.timestamp = inner.key, inner.timestamp
        self.header_pairs, self.headers = inner.header_pairs, inner.headers

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, by default all that are left; what a cancelled task reads is read again."""
        self._threads.check(self)
        data = await self._turns.call(partial(self._read, -1 if size is None else size))
        self._offset += len(data)
        return data

    def _read(self, size: int) -> bytes:
        self._inner.seek(self._offset)
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to any position in the event, at no cost."""
        offset = index(offset)
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise BadArgument(f"cannot seek to {offset} from {whence} in an event of {self.size} bytes")
        self._offset = base + offset
        return self._offset

    def tell(self) -> int:
        """Return how far it was read."""
        return self._offset

    def __aiter__(self) -> AsyncEventInputStream:
        return self

    async def __anext__(self) -> bytes:
        """Return the next bytes, up to 1 MiB."""
        data = await self.read(READ_SIZE)
        if not data:
            raise StopAsyncIteration
        return data

    async def close(self) -> None:
        """Read no more."""
        self._threads.check(self)
        self._inner.close()
