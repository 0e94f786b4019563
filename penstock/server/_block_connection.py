"""One connection for blocks, of a session: its requests, each answered before the next."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Final

import numpy as np
from pyarrow import flight

from penstock.errors import BadArgument
from penstock.frames import HEADER_SIZE_MAX, pack_frame
from penstock.server._appends import WriterAppends, acknowledged_together
from penstock.server._permissions import check
from penstock.server._sent_errors import errors_sent
from penstock.server._transactions import write_batch
from penstock.stream.format import LENGTH_SIZE
from penstock.wire import (
    BLOCK_MESSAGE_SIZE_MAX,
    AskBlocks,
    BlocksAcknowledged,
    BlocksEnd,
    BlocksRefused,
    PutBlock,
    PutRows,
    PutShared,
    SentBlocks,
    cell,
    pack_block_message,
    pack_plain,
    unpack_block_message,
)
from penstock.wire.operations import streams, transactions, writers

if TYPE_CHECKING:
    from penstock.frames import FrameConnection, ReceivedFrame
    from penstock.ports import Bytes
    from penstock.server._block_port import BlockRules
    from penstock.server._session import Session
    from penstock.wire import BlockMessage

__all__ = ["BlockConnection"]

_SEND_S: Final = 86_400.0  # a reader may take its time: it is the session that ends when a client is silent
_ACKNOWLEDGED: Final = pack_block_message(BlocksAcknowledged())
_END: Final = pack_block_message(BlocksEnd())
_logger: Final = logging.getLogger("penstock.server")


def rows_in(request: PutRows, payload: memoryview) -> tuple[memoryview, memoryview, memoryview, int, memoryview]:
    """Return what :func:`write_batch` takes of the bytes behind a request, without a copy."""
    end = LENGTH_SIZE * request.count
    if len(payload) < 2 * end:
        raise BadArgument(f"invalid batch: {len(payload)} bytes behind a message about {request.count} events")
    words, places, rest = payload[:end], payload[end : 2 * end], payload[2 * end :]
    size = int(np.frombuffer(words, ">u4").sum(dtype=np.int64))
    return words, rest[:size], places, request.flags, rest[size:]


class BlockConnection:
    """Serves one connection until it ends, or its session does."""

    def __init__(self, frames: FrameConnection, session: Session, rules: BlockRules) -> None:
        self._frames, self._session, self._rules = frames, session, rules
        self._appends: WriterAppends | None = None  # of a writer with blocks that are not acknowledged
        frames.size_max = HEADER_SIZE_MAX + int(min(BLOCK_MESSAGE_SIZE_MAX, rules.limits.max_message_bytes))

    def serve(self) -> None:
        """Answer requests; the errors of the connection end it."""
        try:
            while not self._session.is_over:
                frame = self._frames.await_frame()
                self._session.note_seen()
                request = unpack_block_message(frame.header)
                try:
                    with errors_sent(self._session):
                        self._answer(request, frame)
                except flight.FlightError as error:
                    if not error.extra_info or self._appends is not None:
                        return  # for the client it is as if the connection were lost
                    self._send(pack_block_message(BlocksRefused(error.extra_info)))
        finally:
            self._end_appends()

    def _answer(self, request: BlockMessage, frame: ReceivedFrame) -> None:
        payload = frame.payload
        self._rules.messages.check(len(payload))
        if isinstance(request, PutBlock):
            self._put_block(request, payload)
        elif self._appends is not None:
            raise BadArgument("blocks that are acknowledged together come one after another")
        elif isinstance(request, PutShared):
            size = len(payload)
            acknowledged = acknowledged_together(self._session, bytes(payload), self._may_append, size=size)
            self._acknowledge(acknowledged)
        elif isinstance(request, PutRows):
            self._put_rows(request, memoryview(payload))
        elif isinstance(request, AskBlocks):
            self._send_blocks(streams.GetBlocks(request.stream, request.segment, request.offset, request.end))
        else:
            raise BadArgument(f"{type(request).__name__} is not a request")

    def _may_append(self, call: writers.AppendBlocks) -> None:
        check(self._session, self._session.ask(), call)

    def _put_block(self, request: PutBlock, payload: Bytes) -> None:
        if self._appends is None:
            self._appends = WriterAppends(self._session, writers.AppendBlocks(request.writer), self._may_append)
        elif self._appends.number != request.writer:
            raise BadArgument("blocks that are acknowledged together have one writer")
        acknowledged = self._appends.put(None, payload, size=len(payload), size_max=BLOCK_MESSAGE_SIZE_MAX)
        if acknowledged is not None:
            self._end_appends()
            self._acknowledge(acknowledged)

    def _put_rows(self, request: PutRows, payload: memoryview) -> None:
        call = transactions.WriteBatch(request.transaction, b"", b"", b"", request.flags, b"")
        check(self._session, self._session.ask(), call)
        write_batch(self._session, request.transaction, *rows_in(request, payload))
        self._acknowledge(None)

    def _end_appends(self) -> None:
        if self._appends is not None:
            self._appends.end()
            self._appends = None

    def _send_blocks(self, call: streams.GetBlocks) -> None:
        quota = self._rules.quotas["reads"]
        quota.take(self._session.owner)
        try:
            with closing(self._rules.blocks_asked(self._session, call)) as batches:
                for batch in batches:
                    start, block, commit_ms = batch.columns
                    message = SentBlocks(start[0].as_py(), commit_ms[0].as_py())
                    self._send(pack_block_message(message), cell(block))
        finally:
            quota.give(self._session.owner)
        self._send(_END)

    def _acknowledge(self, acknowledged: object) -> None:
        if not self._session.is_over:
            self._send(_ACKNOWLEDGED, pack_plain(acknowledged))

    def _send(self, header: bytes, *payload: Bytes) -> None:
        self._frames.send(pack_frame(header, *payload, payload_crc=0), timeout_s=_SEND_S)
