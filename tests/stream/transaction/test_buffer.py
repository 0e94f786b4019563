"""The events of a transaction in memory: a few of them leave without becoming arrays first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.format import Attributes
from penstock.stream.transaction import _buffer
from penstock.stream.transaction._buffer import TransactionBuffer

outputs = st.sampled_from([None, "output"])
events = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=5), st.floats(0, 0.99), outputs))


@given(added=events, keeps_keys=st.booleans())
def test_few_events_make_the_blocks_that_many_make(
    added: list[tuple[bytes, bytes | None, float, str | None]], *, keeps_keys: bool
) -> None:
    """Readers of a block cannot know how its events came; and each open event gets its own place."""
    buffers = TransactionBuffer(), TransactionBuffer()
    for event, key, position, output in added[: _buffer._FEW_EVENTS]:
        for buffer in buffers:
            buffer.add(event, Attributes(key, None), position, output)  # type: ignore[arg-type]
    lows = [0.0, 0.25, 0.5]
    few = buffers[0].contents(lows, keeps_keys=keeps_keys)
    many = buffers[1].by_place(lows, keeps_keys=keeps_keys)
    assert list(few) == list(many)
    for place, contents in few.items():
        expected = many[place].in_one()
        assert (contents.count, contents.columns, contents.outputs) == (
            expected.count,
            expected.columns,
            expected.outputs,
        )
        assert b"".join(contents.body) == b"".join(expected.body)
