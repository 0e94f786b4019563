"""A snapshot of a store that another process has open."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.client._connection import ConnectionLost
from penstock.deadlines import DeadlineExceeded
from penstock.errors import BadArgument, PenstockError, ServerError, SnapshotLost
from penstock.log import PlogCut
from penstock.model import PlogId
from penstock.plog import RawBlocks
from penstock.wire.operations import snapshots

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.client._connection import Channel, Connection
    from penstock.wire.operations import Operation

__all__ = ["RemoteSnapshot"]


class RemoteSnapshot:
    """The plogs of the store at the moment at which this is created. It ends with the connection that it began with."""

    def __init__(self, connection: Connection) -> None:
        self._channel: Final[Channel] = connection.channel
        self._closed = False
        self._number, metadata_plog, count = _checked(self._call(snapshots.TakeSnapshot()), int, str, int)
        self.metadata_plog: Final = _plog_id(metadata_plog)
        cuts: list[PlogCut] = []
        while len(cuts) < count:
            rows = self._call(snapshots.ListPlogs(self._number, len(cuts)))
            if not isinstance(rows, list) or not rows:
                raise ServerError("the server sent an invalid list of plogs: is it a Penstock server?")
            for row in rows:
                plog, length, log, key = _checked(row, str, int, str, bytes)
                cuts.append(PlogCut(_plog_id(plog), length, log, key))
        self.plogs: Final = tuple(cuts)

    def read(self, plog_id: PlogId, offset: int, end: int) -> RawBlocks:
        """Return complete blocks from ``offset`` on, up to ``end`` or up to a limit, as they are stored."""
        answer = self._call(snapshots.ReadSnapshot(self._number, str(plog_id), offset, end))
        key, size, stop, data = _checked(answer, bytes, int, int, bytes)
        if not (offset < stop <= end or offset == stop == end):
            raise ServerError(f"the server sent blocks up to {stop} and not from {offset} to {end}")
        return RawBlocks(key, size, offset, stop, data)

    def where(self, plog_id: PlogId) -> str:
        """Return the name of a plog, for messages."""
        return f"plog {plog_id}"

    def _call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        try:
            return self._channel.call(call)
        except ConnectionLost as error:
            raise SnapshotLost("the connection to the store was lost") from error

    def close(self) -> None:
        """Let go of the snapshot; if the connection is lost, the owner has done so."""
        if not self._closed:
            self._closed = True
            with suppress(PenstockError, DeadlineExceeded):
                self._call(snapshots.CloseSnapshot(self._number))

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _checked(answer: object, *kinds: type) -> Any:  # noqa: ANN401 - a list of values of these kinds
    if not isinstance(answer, list) or [type(value) for value in answer] != list(kinds):
        raise ServerError("the server sent an invalid answer about a snapshot: is it a Penstock server?")
    return answer


def _plog_id(text: str) -> PlogId:
    try:
        return PlogId.parse(text)
    except (BadArgument, ValueError) as error:
        raise ServerError("the server sent an invalid id of a plog: is it a Penstock server?") from error
