"""A writer of this process as the store and the pump see it: what it flushes, when, and how it ends."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock import forks
from penstock.errors import PenstockError, StoreClosed, WriterFenced
from penstock.ports import uninterrupted
from penstock.stream.format import NO_WRITER
from penstock.stream.write._flush import Flusher

if TYPE_CHECKING:
    from penstock.stream.write._host import WriterHost

__all__ = ["ManagedWriter"]


class ManagedWriter:
    """A writer of this process; see :class:`penstock.stream.write.KnownWriter` for what the store calls.

    ``identity`` is what the blocks of a writer without an id carry.
    """

    is_at_work: Final = True

    def __init__(
        self,
        host: WriterHost,
        stream: str,
        writer_id: str | None,
        *,
        notes_time: bool = False,
        identity: bytes = NO_WRITER,
    ) -> None:
        forks.guard(self)
        self.host: Final = host
        self.stream: Final = stream
        self.writer_id: Final = writer_id
        self.notes_time: Final = notes_time  # by itself
        self.flusher: Final = Flusher(self, host, identity=identity)
        self.stream_uid: Final = self.flusher.lanes.uid  # another stream may get the name later
        self.is_pumped = False  # the pump is going to flush
        self._pumped_turn = 0  # the turn of the lanes when it last did

    @property
    def is_sound(self) -> bool:
        """Whether it still writes: it was not closed or fenced, and nothing failed."""
        return self.flusher.trouble is None

    def note_time(self, time: int) -> None:
        """Note a time behind what was written; the pump makes it durable."""
        self.flusher.note_time(time)
        if not self.is_pumped:
            self.call_pump()

    def note_by_itself(self, time: int) -> None:
        """Note a time, for a writer that does so by itself; a writer that has failed does nothing."""
        with suppress(PenstockError):
            self.note_time(time)

    @uninterrupted
    def call_pump(self) -> None:
        """Let the pump flush, unless it is going to."""
        if not self.is_pumped:
            self.is_pumped = True
            self.host.pump.add(self)

    def pump(self) -> bool:
        """Flush, unless another thread does; False if nothing was written since the last time."""
        self.is_pumped = False  # first: an event that comes now is flushed here, or calls the pump again
        flusher, lanes = self.flusher, self.flusher.lanes
        if lanes.size and flusher.flush_lock.acquire(blocking=False):  # the pump's thread knows no interrupts
            try:
                flusher.flush()
            finally:
                flusher.flush_lock.release()
        flusher.announce()
        is_busy = lanes.size > 0 or lanes.turn != self._pumped_turn
        self._pumped_turn = lanes.turn
        if is_busy:
            self.is_pumped = True
        return is_busy

    def fence(self) -> None:
        """Write no more, because another writer has this one's id now; what is under way becomes durable, or fails.

        The pump calls the callbacks: the caller has locks that they may need.
        """
        with self.flusher.flush_lock:
            self._fence()

    @uninterrupted
    def _fence(self) -> None:
        self.flusher.fail(WriterFenced(self.stream, str(self.writer_id)))
        self.call_pump()

    def end(self, *, for_good: bool) -> None:
        """Make everything durable and write no more; watermarks wait for a writer that does not end for good."""
        trouble = self.flusher.holding(lambda: self._end(for_good=for_good))
        if trouble is not None:
            raise trouble

    @uninterrupted
    def _end(self, *, for_good: bool) -> BaseException | None:
        """Return what made an event fail, unless an earlier call did."""
        flusher = self.flusher
        if isinstance(flusher.trouble, StoreClosed):
            return None
        flusher.flush()
        trouble = flusher.trouble
        self.host.forget_writer(self, for_good=for_good and trouble is None)
        flusher.trouble = StoreClosed(f"the writer of stream {self.stream!r}")
        return trouble
