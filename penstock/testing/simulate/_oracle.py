"""The simulated oracle: rows, leases and the newest metadata plog; slow, away, or with an unknown outcome."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.errors import CasConflict, CpoUnavailable, LeaseLost, PenstockError
from penstock.plog.replicated import VersionedRow
from penstock.testing.simulate._kernel import Future

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model import PlogId
    from penstock.plog.replicated import SealRow
    from penstock.testing.simulate._kernel import Kernel, SimProcess

__all__ = ["SimOracle"]

T = TypeVar("T")
_CALL_S: Final = 0.002


class SimOracle:
    """One table that all owners share."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.epoch = 0
        self.rows: dict[PlogId, VersionedRow] = {}
        self.metadata: tuple[PlogId, int] | None = None
        self._version = 0
        self.slowness = 1.0
        self.is_away = False
        self.unknown_share = 0.0

    def call(self, process: SimProcess, change: Callable[[], T]) -> Future:
        """Make a call that takes some time and may fail."""
        kernel, future = self._kernel, Future()

        def carry_out() -> None:
            result: object = None
            error: PenstockError | None = None
            if self.is_away:
                error = CpoUnavailable("simulated", reason="it is away")
            elif kernel.random.random() < self.unknown_share:
                if kernel.random.random() < 0.5:
                    with suppress(PenstockError):
                        change()
                error = CpoUnavailable("simulated", reason="no answer", outcome_unknown=True)
            else:
                try:
                    result = change()
                except PenstockError as refused:
                    error = refused
            kernel.at(_CALL_S * kernel.random.random(), process, lambda: future.resolve(result, error))

        kernel.at(_CALL_S * kernel.random.random() * self.slowness, kernel.world, carry_out)
        return future

    def acquire(self) -> int:
        """Give the partition to a new owner: the next epoch."""
        self.epoch += 1
        return self.epoch

    def check_lease(self, epoch: int) -> None:
        """Refuse an owner that is not the present one."""
        if epoch != self.epoch:
            raise LeaseLost("partition", epoch=epoch)

    def write_row(self, plog_id: PlogId, row: SealRow | None, *, expected: int, epoch: int) -> int:
        """Write or remove a row, if it is at the version expected."""
        self.check_lease(epoch)
        present = self.rows.get(plog_id)
        actual = 0 if present is None else present.version
        if actual != expected:
            raise CasConflict(f"seal/{plog_id}", expected=expected, actual=actual)
        self._version += 1
        if row is None:
            del self.rows[plog_id]
        else:
            self.rows[plog_id] = VersionedRow(row, self._version)
        return self._version

    def publish(self, plog_id: PlogId, *, expected: int, epoch: int) -> int:
        """Make a metadata plog the newest one."""
        self.check_lease(epoch)
        actual = 0 if self.metadata is None else self.metadata[1]
        if actual != expected:
            raise CasConflict("metadata", expected=expected, actual=actual)
        self._version += 1
        self.metadata = (plog_id, self._version)
        return self._version
