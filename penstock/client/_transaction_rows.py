"""Events of a transaction on their way to the server: over a connection for blocks, or as a call.

Over a connection for blocks they go as they lie in memory. A call copies them several times, here and there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client._knock import ConnectionLost
from penstock.client._translated import translated
from penstock.ports import uninterrupted
from penstock.stream.format import pack_positions
from penstock.wire import PutRows
from penstock.wire.operations.transactions import WriteBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from penstock.client._connection import Connection
    from penstock.stream.write import EventRows

__all__ = ["send_rows"]


@uninterrupted
def send_rows(connection: Connection, transaction: str, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
    """Add events to a transaction, all of them or none; ``StoreUnreachable`` if it is unknown which."""
    flags, (words, data, *columns) = rows.packed()
    places = pack_positions(positions)
    channel = connection.channel
    found = channel.sockets.take()
    if found is None:
        connection.call(WriteBatch(transaction, bytes(words), bytes(data), places, flags, b"".join(columns)))
        return
    try:
        with translated(channel), channel.sockets.used(found):
            found.put_rows(PutRows(transaction, len(rows), flags), (words, places, data, *columns))
    except ConnectionLost as error:
        raise connection.unknown("whether events of a transaction were added is not known") from error
