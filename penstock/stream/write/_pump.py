"""The pump: flushes what a writer has buffered when no other thread does.

A thread that waits for an acknowledgement, or fills a buffer, flushes at once by itself. The pump is for events that no
thread waits for: they are flushed a moment later, so that more of them go together. While a writer is in use the pump
comes back to it again and again, so that not every event has to wake it.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from penstock.ports import uninterrupted
from penstock.stream.segment import WakeUp

__all__ = ["LINGER_S", "Pump"]

LINGER_S: Final = 0.001
_logger: Final = logging.getLogger("penstock.stream")


class Pumped(Protocol):
    """A writer, as the pump sees it."""

    def pump(self) -> bool:
        """Flush; False if nothing was written since the last time, so that the pump need not come again."""


class Pump:
    """One thread for all writers of a store, started with the first event that it may have to flush."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._waiting: dict[Pumped, None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, writer: Pumped) -> None:
        """Flush what the writer has, a moment later."""
        with self._lock:
            self._waiting[writer] = None
            if self._thread is None and not self._closed:
                self._start()
        self._wake_up.notify()

    @uninterrupted
    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="penstock-pump", daemon=True)
        thread.start()
        self._thread = thread

    @property
    def is_at_work_here(self) -> bool:
        """Whether this thread is the pump's: then no other flushes what it waits for."""
        return threading.current_thread() is self._thread

    def _work(self) -> None:
        linger = WakeUp()  # never notified: it only measures the time
        while True:
            if not self._waiting:
                self._wake_up.wait(None)
            if self._closed:
                return
            linger.wait(LINGER_S)
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            busy = [writer for writer in waiting if _pumped(writer)]
            with self._lock:
                self._waiting.update(dict.fromkeys(busy))

    def close(self) -> None:
        """End the thread; what is buffered stays where it is."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._wake_up.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _pumped(writer: Pumped) -> bool:
    """Return whether to come again; a writer that fails does not keep the others from being flushed."""
    try:
        return writer.pump()
    except BaseException:
        _logger.exception("the pump could not flush a writer")
        return False
