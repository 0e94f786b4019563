"""Messages of every coding become values that JSON can hold, or an error that names what is wrong."""

from __future__ import annotations

import math
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FutoinError
from penstock.events._codings import CBOR, CODINGS, JSON, MSGPACK, Coding, coding_of

WHOLE = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(coding=st.sampled_from(CODINGS), value=st.dictionaries(st.text(), VALUES, max_size=4))
def test_message_is_decoded_as_it_was_encoded(coding: Coding, value: dict[str, Any]) -> None:
    """A peer of any coding sees the same event."""
    message = coding.encode(value)
    assert coding_of(message) is coding
    assert coding.decode(message) == value


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (JSON, b""),
        (JSON, b'{"a":NaN}'),
        (JSON, b'{"a":1e400}'),
        (JSON, b'{"a":"\\ud800"}'),
        (JSON, b'{"a":"\xff"}'),
        (JSON, b"[" * 10_000 + b"]" * 10_000),
        (MSGPACK, b""),
        (MSGPACK, msgspec.msgpack.encode({"a": math.nan})),
        (MSGPACK, msgspec.msgpack.encode({"a": math.inf})),
        (MSGPACK, msgspec.msgpack.encode({"a": b"bytes"})),
        (MSGPACK, b"\xdd\xff\xff\xff\xff"),
        (MSGPACK, b"\x91" * 10_000 + b"\x90"),
        (CBOR, b""),
        (CBOR, cbor2.dumps({"a": math.nan})),
        (CBOR, cbor2.dumps({"a": b"bytes"})),
        (CBOR, b"\x9b\x00\x00\x00\xff\xff\xff\xff\xff"),
        (CBOR, b"\x81" * 10_000 + b"\x80"),
        (CBOR, b"\xd8\x1c\x81\xd8\x1d\x00"),  # an array that holds itself
        (CBOR, b"\xa0\xa0"),
        (
            CBOR,
            b"\x82\xd8\x1c\x81\x01\xd8\x1d\x00",
        ),  # a part that stands for another: a few of them, nested, fill the memory
        (CBOR, b"\xd9\x01\x00\x82\x63abc\xd8\x19\x00"),
        (CBOR, b"\xa2\x01\x02\x61\x31\x03"),
    ],
)
def test_what_is_no_json_value_is_refused(coding: Coding, body: bytes) -> None:
    """Data is stored as JSON, and a peer of another coding has to be able to read it."""
    with pytest.raises(FutoinError) as refusal:
        coding.decode(coding.prefix + body)
    assert refusal.value.name == "InvalidRequest"
