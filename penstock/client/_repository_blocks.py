"""The blocks of a repository stream, as a server sends them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.client._connection import ConnectionLost, busy_retry
from penstock.errors import ServerBusy
from penstock.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client._connection import Connection
    from penstock.wire.operations.repositories import GetRepositoryStream

__all__ = ["repository_blocks"]


def repository_blocks(connection: Connection, call: GetRepositoryStream) -> Iterator[bytes]:
    """Return the blocks; wait while the server sends others as many as it can.

    A connection that is lost before the first block, as when the server starts again, costs another attempt.
    """
    retry, busy, is_begun = Retry(), busy_retry(time.monotonic()), False
    while True:
        try:
            for batch in connection.get(connection.channel, call):
                is_begun = True
                yield from batch["block"].to_pylist()
        except ServerBusy as error:  # which it says at the beginning
            busy.after(error)
        except ConnectionLost as error:
            if is_begun:
                raise connection.unknown("the stream did not come to its end: ask for it again") from error
            retry.after(error, connection.lost_again_and_again)
        else:
            return
