"""The scrub of a simulated server: the real one, without its thread, on replicas and small files that are simulated."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Final, cast

from penstock.errors import PlogCorrupt
from penstock.plog.server import Scrubber, ScrubSettings

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog.server import HostedPartition, ServerFolder
    from penstock.testing.simulate._kernel import Kernel
    from penstock.testing.simulate._storage import SimStorage

__all__ = ["SimScrubber"]

_PARTITION: Final = "p"
_SETTINGS: Final = ScrubSettings(period_s=3.0)
_logger: Final = logging.getLogger("penstock.plog_server")


class SimScrubber(Scrubber):
    """The scrub of one run of a server."""

    def __init__(self, storage: SimStorage, kernel: Kernel) -> None:
        self._partition = _SimPartition(storage)
        folder = cast("ServerFolder", _SimFolder(self._partition))
        super().__init__(folder, _SETTINGS, clock=_SimClock(kernel))

    def run_if_due(self) -> None:
        """Scrub if it is due, as the thread does every second."""
        was_disabled, _logger.disabled = _logger.disabled, True  # damage that is simulated needs nobody
        try:
            self._scrub_if_due(_PARTITION, cast("HostedPartition", self._partition))
        finally:
            _logger.disabled = was_disabled

    def _check_once(self, partition: HostedPartition, plog_id: PlogId) -> None:
        """Check a replica in place of its file."""
        storage = cast("_SimPartition", partition).replicas
        if storage.info(plog_id).sealed and storage.replicas_by_uid[plog_id.uid_bytes].damage:
            raise PlogCorrupt(storage.where(plog_id), offset=0, reason="simulated damage")


class _SimPartition:
    def __init__(self, replicas: SimStorage) -> None:
        self.replicas = replicas


class _SimFolder:
    """The small files of a server."""

    def __init__(self, partition: _SimPartition) -> None:
        self._storage = partition.replicas

    def stored(self, name: str) -> bytes:
        try:
            return self._storage.files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def store(self, name: str, content: bytes) -> None:
        if self._storage.is_full or self._storage.is_failed:
            raise OSError(errno.ENOSPC if self._storage.is_full else errno.EIO, "simulated")
        self._storage.files[name] = content


class _SimClock:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def now(self) -> float:
        return 1e9 + self._kernel.now

    def elapsed(self) -> float:
        return self._kernel.now
