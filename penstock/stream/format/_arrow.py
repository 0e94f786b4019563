"""Arrow data of others, which is checked before anything looks into it.

Arrow itself reads wherever the offsets of an array point: with offsets beyond its buffers, events would be made of this
process's own memory, or the process would end with a segmentation fault.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.errors import BadArgument

__all__ = ["check_arrow"]

_SAME_BYTES: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def check_arrow(data: pa.Array | pa.ChunkedArray | pa.RecordBatch) -> None:
    """Refuse data whose lengths, offsets and buffers do not fit together; call it before its size is asked for.

    A column of texts is checked as bytes: a check for UTF-8 takes far longer, and events are stored as bytes.
    """
    try:
        if isinstance(data, pa.RecordBatch):
            data.validate()
        for array in _arrays(data):
            kind = _SAME_BYTES.get(array.type)
            (array if kind is None else array.view(kind)).validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter where a name is no text
        raise BadArgument(f"invalid Arrow data: {error}") from error
    except KeyError as error:  # of an interval, say
        raise BadArgument("invalid Arrow data: a column has a type that Python does not know") from error


def _arrays(data: pa.Array | pa.ChunkedArray | pa.RecordBatch) -> list[pa.Array]:
    if isinstance(data, pa.RecordBatch):
        return list(data.columns)
    return data.chunks if isinstance(data, pa.ChunkedArray) else [data]
