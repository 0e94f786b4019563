"""Columns of one row: how blocks go over the wire."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.wire import cell, column_of


@given(st.binary())
def test_what_is_put_into_a_column_is_found_there(data: bytes) -> None:
    """Also after it was sent."""
    sent = pa.record_batch([column_of(data)], ["block"]).serialize()
    (column,) = pa.ipc.read_record_batch(sent, pa.schema([("block", pa.binary())])).columns
    assert bytes(cell(column_of(data))) == bytes(cell(column)) == data


def test_nothing_is_copied_on_either_side() -> None:
    """A block is a megabyte, and memory that is touched for the first time costs as much as sending it."""
    data = bytearray(b"abc")
    view = cell(column_of(memoryview(data)))
    data[0] = ord("x")
    assert bytes(view) == b"xbc"


@pytest.mark.parametrize("bounds", [(0, 4), (-1, 2), (2, 1), (1 << 30, (1 << 30) + 3)])
def test_a_column_that_points_outside_of_itself_is_refused(bounds: tuple[int, int]) -> None:
    """A client that can connect can send one, and must not see the server's memory."""
    words = bytearray(8)
    column = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(words), pa.py_buffer(b"abc")])
    words[:] = b"".join(one.to_bytes(4, "little", signed=True) for one in bounds)
    with pytest.raises(BadArgument, match="outside of its data"):
        cell(column)
