"""A transaction that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from penstock.errors import TransactionEnded

if TYPE_CHECKING:
    from penstock.stream.transaction._status import Status

__all__ = ["EndedTransaction"]


class EndedTransaction:
    """A transaction of which only the outcome is known: every call but ``abort`` of an aborted one is refused."""

    def __init__(self, transaction: str, status: Status, why: str | None = None) -> None:
        self.id: Final = transaction
        self.status: Final = status
        self._why = why or f"it was {status}"

    def _refuse(self) -> NoReturn:
        raise TransactionEnded(self.id, reason=self._why)

    def ping(self) -> None:
        """Refuse."""
        self._refuse()

    def write_event(self, event: object, key: str | bytes | None = None, *, headers: object = None) -> None:
        """Refuse."""
        del event, key, headers
        self._refuse()

    def write_batch(self, events: object, keys: object = None, headers: object = None) -> None:
        """Refuse."""
        del events, keys, headers
        self._refuse()

    def prepare(self) -> None:
        """Refuse."""
        self._refuse()

    def begin_write_event(self, key: str | bytes | None = None, *, headers: object = None) -> NoReturn:
        """Refuse."""
        del key, headers
        self._refuse()

    def commit(self, timestamp: int | None = None) -> None:
        """Refuse."""
        del timestamp
        self._refuse()

    def abort(self) -> None:
        """Refuse, unless it was aborted."""
        if self.status != "aborted":
            self._refuse()
