"""The appends of an owner to one plog: what is under way, what all three servers have, when a replica is lost.

Invariants: ``committed <= written``; every server has acknowledged everything up to ``committed``, and nothing behind
it was ever reported to a caller or read. A replica holds a prefix of what the owner has written, so one offset for each
server is all that has to be known. Once the plog has failed, ``committed`` never grows again: only
:func:`~penstock.plog.replicated.decide_length` says how long the plog is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import AppendTooLarge, PlogFull, PlogSealed, ReplicaLost, WrongOffset
from penstock.plog._replica import APPEND_SIZE_MAX
from penstock.plog.replicated._messages import AppendKept, Refusal, ReplicaAppended
from penstock.plog.replicated._refusals import fenced_by

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.model import PlogId
    from penstock.plog.replicated._messages import Answer

__all__ = ["REPLICAS", "REPLICA_WAIT_S", "AppendWindow", "SentAppend"]

REPLICAS: Final = 3
REPLICA_WAIT_S: Final = 2.0


class SentAppend(msgspec.Struct, frozen=True):
    """An append under way: its place, its data, and the time by which all servers have to have acknowledged it."""

    offset: int
    end: int
    data: tuple[bytes | memoryview, ...]
    deadline: float


class AppendWindow:
    """One open plog of an owner, with the appends that not all servers have acknowledged."""

    def __init__(self, plog_id: PlogId, *, size: int, servers: tuple[str, ...], wait_s: float = REPLICA_WAIT_S) -> None:
        assert len(servers) == REPLICAS
        self.plog_id, self.size = plog_id, size
        self._servers, self._wait_s = servers, wait_s
        self._acked = [0] * REPLICAS
        self._sent: deque[SentAppend] = deque()
        self.written = self.committed = 0
        self.closed = False  # it is being sealed
        self.is_decided = False  # it has failed, and its length is decided, so that repair can copy it
        self.failure: PenstockError | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether every append was acknowledged by all servers, so that none can arrive late anywhere."""
        return self.committed == self.written

    @property
    def deadline(self) -> float | None:
        """The time by which the next acknowledgement is due; None if nothing is under way."""
        return self._sent[0].deadline if self._sent and self.failure is None else None

    def submit(self, offset: int, *data: bytes | memoryview, now: float) -> SentAppend:
        """Note an append to be sent to all servers; the order of the checks is part of the interface of plogs."""
        size = sum(map(len, data))
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise PlogSealed(self.plog_id, sealed_offset=self.committed)
        if size > APPEND_SIZE_MAX:
            raise AppendTooLarge(size=size, limit=APPEND_SIZE_MAX)
        if offset != self.written:
            raise WrongOffset(self.plog_id, offset=offset, expected=self.written)
        if size > self.size - self.written:
            raise PlogFull(self.plog_id, free=self.size - self.written, size=size)
        append = SentAppend(offset, offset + size, data, now + self._wait_s)
        if size:
            self._sent.append(append)
        self.written = append.end
        return append

    def answered(self, server: int, answer: Answer) -> int:
        """Note the answer of a server to an append; return the committed offset."""
        match answer:
            case ReplicaAppended():
                self._acked[server] = max(self._acked[server], min(answer.length, self.written))
                self._commit()
            case AppendKept():
                pass  # it is acknowledged with the append before it, or its time runs out
            case Refusal(reason="fenced"):
                self.fail(fenced_by(answer.value))
            case Refusal(reason="superseded"):
                pass  # a later session repeats it
            case _:
                reason = answer.reason if isinstance(answer, Refusal) else type(answer).__name__
                self.lose(server, f"it answered {reason}")
        return self.committed

    def _commit(self) -> None:
        if self.failure is None:
            self.committed = min(self._acked)
            while self._sent and self._sent[0].end <= self.committed:
                self._sent.popleft()

    def lose(self, server: int, reason: str) -> None:
        """Note that a server does not take the appends: the plog has failed."""
        self.fail(ReplicaLost(self.plog_id, server=self._servers[server], reason=reason))

    def fail(self, error: PenstockError) -> None:
        """Take no more appends, and acknowledge none; the first error counts."""
        if self.failure is None:
            self.failure = error

    def expire(self, now: float) -> int | None:
        """Fail if a server has not acknowledged an append in time; return its place."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        server = self._acked.index(min(self._acked))
        self.lose(server, f"no acknowledgement within {self._wait_s:g} s")
        return server

    def unacknowledged(self, server: int) -> list[SentAppend]:
        """Return the appends to repeat to a server after its connection was lost, in order."""
        if self.failure is not None:
            return []
        return [append for append in self._sent if append.end > self._acked[server]]
