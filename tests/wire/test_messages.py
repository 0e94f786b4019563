"""Calls, answers and errors as bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors, model
from penstock.errors import BadArgument, DataTruncated, NoSuchStream, PenstockError, ServerError, WrongCut
from penstock.model import EventPointer, SegmentRange, StreamConfig, StreamCut, Watermark
from penstock.wire import pack, pack_error, pack_plain, pack_refusal, unpack, unpack_call, unpack_error

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False)
)
VALUES = st.recursive(PLAIN, lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=10)


@given(VALUES)
def test_what_is_packed_is_unpacked_the_same(value: object) -> None:
    """On both ways: as an argument, and as an answer."""
    assert unpack(pack(value)) == unpack_call(pack(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        EventPointer.parse("a/b:1@20"),
        StreamCut.of("a/b", {0: 7, 3: 9}),
        SegmentRange("a/b", 0, 10, 20),
        StreamConfig(),
        Watermark(1, 2, StreamCut.of("a/b", {0: 7})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_the_model_arrive_as_such(value: object) -> None:
    """Also inside lists and dictionaries; the receiver may compare them with its own."""
    assert unpack(pack({"one": [value]})) == {"one": [value]}


@pytest.mark.parametrize("value", [Ellipsis, 1 << 64, -(1 << 63) - 1, "\ud800", {1, 2}, 1j], ids=ascii)
def test_an_argument_that_cannot_be_sent_reaches_the_operation_as_something_it_refuses(value: object) -> None:
    """So that a client hears the same error from the operation as it would in the same process."""
    (sent,) = unpack_call(pack([value]))
    with pytest.raises(BadArgument):
        model.check_whole("count", sent)
    with pytest.raises(ServerError):
        unpack(pack([value]))


def test_a_value_that_is_none_is_refused_by_its_operation_and_not_before() -> None:
    """One bad argument of one client is no error of the server."""
    forged = msgspec.msgpack.encode([msgspec.msgpack.Ext(2, msgspec.msgpack.encode("no cut"))])
    (sent,) = unpack_call(forged)
    with pytest.raises(BadArgument):
        model.check_kind("start", sent, StreamCut)
    with pytest.raises(ServerError):
        unpack(forged)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", pack_plain(1)[:0], b"\xc7\x01\x63\x00"], ids=repr)
def test_bytes_that_are_no_answer_are_an_error_of_the_server(data: bytes) -> None:
    """A proxy, or another version, may answer anything."""
    with pytest.raises(ServerError):
        unpack(data)


@pytest.mark.parametrize(
    "error", [NoSuchStream("a/b"), DataTruncated("a/b:0@1", head="a/b:0@9"), BadArgument("x")], ids=repr
)
def test_an_error_arrives_as_its_class_with_its_text_and_fields(error: PenstockError) -> None:
    """Programs catch classes and read fields, whether the store is in their process or not."""
    again = unpack_error(pack_error(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_an_error_that_this_client_does_not_know_is_one_of_the_server() -> None:
    """A newer server has newer errors, and its text still says what is wrong."""
    told: Any = unpack_error(pack(["Unheard", "what is wrong", {"place": 3}]))
    assert (type(told), str(told), told.place) == (ServerError, "what is wrong", 3)


def test_no_class_but_an_error_is_made_from_what_came() -> None:
    """Whatever a server sends is data: a name of something else in the same module is not called."""
    for name in ("annotations", "TYPE_CHECKING", *(one for one in vars(errors) if one.startswith("__"))):
        assert type(unpack_error(pack([name, "text", {}]))) is ServerError


@pytest.mark.parametrize("text", ["x" * 10_000_000, "\u20ac" * 1_000_000])
def test_a_refusal_is_short_enough_to_arrive(text: str) -> None:
    """GRPC sends it among its headers, and hangs up if they have more than 8 KiB."""
    cut = StreamCut.of("a/b", {number: number << 20 for number in range(10_000)})
    message, packed = pack_refusal(WrongCut("a/b", cut, reason=text))
    assert 3 * len(message.encode()) + 4 / 3 * len(packed) < 7_000
    told: Any = unpack_error(packed)
    assert (type(told), told.stream, told.cut) == (WrongCut, "a/b", None)
    assert str(told).endswith("...")


def test_a_refusal_of_a_usual_size_is_told_as_it_is() -> None:
    """Programs read the fields of errors."""
    error = WrongCut("a/b", StreamCut.of("a/b", {number: number << 20 for number in range(100)}), reason="so")
    message, packed = pack_refusal(error)
    told = unpack_error(packed)
    assert vars(told) == vars(error)
    assert str(error).startswith(message.removesuffix("..."))
