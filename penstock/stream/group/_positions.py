"""Positions: a thread makes the positions of readers durable, independent of what readers and the store do.

A reader that works on one event for a while does not call its group, and in a store where nothing else happens no other
record takes its position to the disk. So this does not wait for either.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stream.catalog import Catalog
    from penstock.stream.group._coordinator import Coordinator

__all__ = ["POSITIONS_EVERY_S", "Positions"]

POSITIONS_EVERY_S: Final = 0.4
"""With the time that a client takes to report, and a slow sync, a position is durable within a second."""

_logger: Final = logging.getLogger("penstock.stream")


class Positions:
    """Records the positions of all readers of a store; the thread runs only while there are any."""

    def __init__(self, catalog: Catalog, coordinators: Mapping[str, Coordinator]) -> None:
        self._catalog, self._coordinators = catalog, coordinators
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Start the thread if it does not run; the caller holds the catalog's lock."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._work, name="penstock-positions", daemon=True)
            self._thread.start()

    @property
    def is_at_work(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def _work(self) -> None:
        while not self._stop.wait(POSITIONS_EVERY_S):
            try:
                if not self.run_once():
                    return
            except Exception as error:  # noqa: BLE001 - the next run tries again
                _logger.warning("the positions of readers could not be recorded: %s", error)

    def run_once(self) -> bool:
        """Make all positions durable; return whether to go on: there are readers, and the disk has not failed."""
        catalog = self._catalog
        with catalog.lock:
            groups = [group for group in self._coordinators.values() if group.readers and not catalog.is_failed]
            for group in groups:
                group.record_all()
            if not catalog.is_failed:
                catalog.make_durable()
            if not groups:
                self._thread = None
            return bool(groups)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._catalog.lock:
            thread = self._thread
        if thread is not None:
            thread.join()
