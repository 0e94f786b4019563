"""Operations about the state of the store: what ``penstock top`` shows."""

from typing import Literal

from penstock.wire.operations._arguments import Limit, Name, Number, StreamName
from penstock.wire.operations._operation import Operation, declare

Order = Literal["name", "events", "bytes", "time", "lag", "transactions"]


@declare("overview", "read", "unchecked", repeats=True)
class GetOverview(Operation):
    """Return figures of some of the streams that the user may read: those whose names contain a text, in an order."""

    contains: Name
    order: Order
    first: Number
    limit: Limit


@declare("stream_figures", "read", repeats=True)
class GetStreamFigures(Operation):
    """Return the rates, watermarks, writers, readers and transactions of a stream."""

    name: StreamName
