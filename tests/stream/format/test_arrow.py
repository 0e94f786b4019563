"""Arrow data of others is checked before anything looks into it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.embedded import open_store
from penstock.errors import BadArgument
from penstock.stream.format import check_arrow

STREAM = "plant/readings"


def torn(kind: pa.DataType = pa.binary()) -> pa.Array:  # noqa: B008 - it is a value
    """Return two values, the end of the first of which lies far outside of the data."""
    offsets = pa.py_buffer(np.array([0, 1 << 30, 4], np.int32))
    return pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(b"abcd")])


TORN_MAPS = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), torn(pa.string()), pa.array([b"", b""]))


@pytest.mark.parametrize(
    "data", [torn(), torn(pa.string()), pa.chunked_array([torn()]), pa.record_batch({"event": torn()}), TORN_MAPS]
)
def test_data_whose_offsets_do_not_fit_is_refused(data: pa.Array | pa.ChunkedArray | pa.RecordBatch) -> None:
    """Arrow reads wherever they point."""
    with pytest.raises(BadArgument, match=r"invalid Arrow data: .*[Oo]ffset"):
        check_arrow(data)


def test_texts_are_checked_as_bytes() -> None:
    """Of events only the bytes matter, and looking for UTF-8 takes a hundred times as long."""
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    check_arrow(pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xff")]))


@pytest.mark.parametrize("columns", [(torn(),), ([b"a", b"b"], torn()), ([b"a", b"b"], None, TORN_MAPS)])
def test_a_batch_or_a_transaction_takes_no_torn_arrays(columns: tuple[Any, ...]) -> None:
    """A caller's own mistake with buffers would be stored as other bytes of its memory, or end its process."""
    with open_store("memory:") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer, pytest.raises(BadArgument, match="invalid Arrow data"):
            writer.write_batch(*columns)
        transaction = store.transactional_writer(STREAM).begin()
        with pytest.raises(BadArgument, match="invalid Arrow data"):
            transaction.write_batch(*columns)
        transaction.abort()
        assert list(store.read(STREAM)) == []
