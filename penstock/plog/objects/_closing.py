"""Closing while the bucket is away: a store that is being closed does not wait for a minute.

What was not acknowledged by then fails with ``StorageUnavailable``: as if the process were killed, it may be durable or
not. The next owner finds all that was acknowledged.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from penstock.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog.objects._journal import ObjectJournal
    from penstock.ports import Clock

__all__ = ["ClosingWatch"]

SILENCE_MAX_S: Final = 10.0  # without an answer of the bucket, while a closing store waits for one
_LOOK_S: Final = 0.2


class ClosingWatch:
    """Stops the journal of a store that is being closed if the bucket does not answer."""

    def __init__(self, journal: ObjectJournal, is_waiting: Callable[[], bool], clock: Clock) -> None:
        self._journal, self._is_waiting, self._clock = journal, is_waiting, clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def begin(self) -> None:
        """Watch from now on, in a thread of its own: the others may all wait for the bucket."""
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._watch, name="penstock-closing", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self) -> None:
        requests, quiet_since = self._journal.requests, self._clock.elapsed()
        while not self._over.wait(_LOOK_S):
            now = self._clock.elapsed()
            if not self._is_waiting():
                quiet_since = now
            elif now - max(quiet_since, requests.answered_at) >= SILENCE_MAX_S:
                requests.give_up()
                reason = f"it has not answered for {SILENCE_MAX_S:g} s, and the store is being closed"
                self._journal.stop(StorageUnavailable(requests.objects.where(), reason=reason))
                return
