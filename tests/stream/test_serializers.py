"""Serializers: values to bytes and back, and what is refused on either way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument, NotDecodable, StreamError
from penstock.stream.serializers import JsonSerializer, StrSerializer

if TYPE_CHECKING:
    from penstock.stream.serializers import Serializer


class Reading(msgspec.Struct, frozen=True):
    sensor: str
    value: float


@dataclass(frozen=True)
class Plain:
    sensor: str
    value: float


class Keyed(TypedDict):
    sensor: str


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FIGURES = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | FIGURES | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(TEXTS)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    """Any text is an event, also an empty one and one with zeros in it."""
    assert StrSerializer().deserialize(StrSerializer().serialize(text)) == text


def test_a_text_is_stored_as_utf_8() -> None:
    """Readers in other languages rely on it."""
    assert StrSerializer().serialize("größe") == b"gr\xc3\xb6\xc3\x9fe"


@pytest.mark.parametrize("value", [b"bytes", 5, None, "\ud800"])
def test_what_is_no_text_is_refused(value: str) -> None:
    """Guessing an encoding would write something that was not asked for."""
    with pytest.raises(BadArgument, match="invalid event"):
        StrSerializer().serialize(value)


def test_bytes_that_are_no_utf_8_are_a_clear_error() -> None:
    """A reader who chose the wrong serializer is told so, with a class that he can catch."""
    with pytest.raises(NotDecodable, match="not UTF-8") as caught:
        StrSerializer().deserialize(b"\xff")
    assert isinstance(caught.value, StreamError)


@given(VALUES)
def test_a_json_value_comes_back_as_it_was(value: object) -> None:
    """Without a type: whatever JSON can hold."""
    serializer = JsonSerializer()
    assert serializer.deserialize(serializer.serialize(value)) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Reading, Reading("t1", 20.5)),
        (Plain, Plain("t1", 20.5)),
        (Keyed, {"sensor": "t1"}),
        (list[Reading], [Reading("t1", 1.0)]),
        (dict[str, int], {"a": 1}),
        (int | str, 5),
        (float, 5),
        (bytes, b"\x00\xff"),
    ],
)
def test_a_typed_value_comes_back_with_its_type(kind: type[object], value: object) -> None:
    """The point of a type: what is read is checked, and no dictionary to be picked apart."""
    serializer: Serializer[object] = JsonSerializer(kind)
    assert serializer.deserialize(serializer.serialize(value)) == value


@pytest.mark.parametrize("value", [{"sensor": "t1", "value": 1.0}, Plain("t1", 1.0), None])
def test_a_value_of_another_type_is_not_written(value: Reading) -> None:
    """It would be an event that no reader with the same serializer gets past."""
    with pytest.raises(BadArgument, match="use a Reading"):
        JsonSerializer(Reading).serialize(value)


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, "\ud800", {"a": {1, object()}}])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    """It is the caller's mistake, so it is a BadArgument and not whatever the library raises."""
    with pytest.raises(BadArgument, match="JSON cannot express it"):
        JsonSerializer().serialize(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    """It has no end."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(BadArgument, match="JSON cannot express it"):
        JsonSerializer().serialize(value)


@pytest.mark.parametrize("data", [b"", b"{", b'"\xff"', b"1 2", b"[" * 100_000, b"\x00"])
def test_bytes_that_are_no_json_are_a_clear_error(data: bytes) -> None:
    """Any bytes may stand in a stream, and none may break a reader otherwise."""
    with pytest.raises(NotDecodable, match="not JSON"):
        JsonSerializer().deserialize(data)


def test_json_of_another_type_is_a_clear_error() -> None:
    """It says which type was expected and what is wrong."""
    with pytest.raises(NotDecodable, match=r"Reading.*value"):
        JsonSerializer(Reading).deserialize(b'{"sensor":"t1","value":"warm"}')


def test_a_type_that_json_cannot_be_is_refused_at_once() -> None:
    """Not when the first event comes."""
    with pytest.raises(BadArgument, match="JSON cannot be read as"):
        JsonSerializer(5)  # type: ignore[call-overload]
