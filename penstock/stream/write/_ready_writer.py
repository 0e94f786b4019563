"""A writer for callers that must not wait inside of it, such as an event loop.

Adding an event to a buffer takes a microsecond and waits for nothing. What may wait for the disk or a server is refused
with ``WouldWait`` before anything is changed, and the caller lets a thread do it with the writer itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from penstock.stream.write._writer import BUFFER_SIZE, StreamWriter

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from penstock.stream.format import Headers
    from penstock.stream.write._acks import Ack, DoneAck
    from penstock.stream.write._lanes import Lanes

__all__ = ["ReadyWriter", "WouldWait"]


class AnyAck(Protocol):
    """An acknowledgement, of an event or of a batch."""

    def done(self) -> bool:
        """Whether what it stands for is durable, or has failed."""


class WouldWait(Exception):
    """The event cannot be added without waiting; nothing was changed."""


class ReadyWriter(StreamWriter):
    """Adds single events to the buffer of a writer that is open; it has the same lanes and the same locks."""

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__(writer._open, None)
        self._serialize = writer._serialize

    @property
    def lanes(self) -> Lanes:
        """What waits to be flushed: above ``BUFFER_SIZE`` the caller waits before it adds more."""
        return self._lanes

    @property
    def lock(self) -> threading.Lock:
        """The lock of the lanes. While it is locked, adding an event waits: for a moment, or for a server."""
        return self._lock

    @property
    def is_full(self) -> bool:
        """Whether the caller has to wait for :meth:`flush_for` before it adds more."""
        return self._lanes.size > BUFFER_SIZE or self._lock.locked()

    def flush_for(self, acks: Sequence[AnyAck]) -> None:
        """Return when these acknowledgements are done, and the buffer was not full; errors are theirs to report."""
        self._flusher.holding(
            lambda: None if all(ack.done() for ack in acks) and not self.is_full else self._flusher.flush()
        )

    def _flush_if_full(self) -> None:
        """Leave it to the caller, who asks :attr:`is_full` before the next event."""

    def _write_large(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> NoReturn:
        raise WouldWait

    def _write_numbered(
        self, event: bytes, key: str | bytes | None, number: int | None, headers: Headers | None
    ) -> Ack | DoneAck:
        numbers = self._numbers
        if not numbers.are_given or (number is not None and self._may_be_there(number)):
            raise WouldWait
        return super()._write_numbered(event, key, number, headers)

    def _may_be_there(self, number: object) -> bool:
        """Whether an event may have been written before under this number: a server would be asked."""
        return type(number) is int and number < self._numbers.resume
