"""Places in a stream: as text and back, and what is no place."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.model import EventPointer, Position, SegmentRange, StreamCut

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBER_MAX: Final = 10**18 - 1
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}/[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
NUMBERS = st.integers(0, NUMBER_MAX)
OFFSETS = st.dictionaries(NUMBERS, NUMBERS, min_size=1, max_size=5)
CUTS = st.builds(StreamCut.of, NAMES, OFFSETS)


@given(st.builds(EventPointer, NAMES, NUMBERS, NUMBERS))
def test_a_pointer_comes_back_from_its_text(pointer: EventPointer) -> None:
    """It is printed, stored elsewhere, and given to the command line."""
    assert EventPointer.parse(str(pointer)) == pointer


@given(CUTS)
def test_a_cut_comes_back_from_its_text(cut: StreamCut) -> None:
    """A Spark offset is nothing but this text."""
    assert StreamCut.parse(str(cut)) == cut
    assert StreamCut.of(cut.stream, cut.offsets) == cut


@given(st.dictionaries(st.tuples(NAMES, NUMBERS), NUMBERS, max_size=6))
def test_a_position_comes_back_from_its_text(offsets: dict[tuple[str, int], int]) -> None:
    """Over several streams, and over none."""
    position = Position.of(offsets)
    assert position.offsets == offsets
    assert Position.parse(str(position)) == position


def test_texts_are_as_documented() -> None:
    """People read them, and other programs do."""
    assert str(EventPointer("plant/readings", 3, 1016)) == "plant/readings:3@1016"
    assert str(StreamCut.of("plant/readings", {5: 7, 3: 1016})) == "plant/readings:3@1016,5@7"
    assert str(Position.of({("b/b", 1): 2, ("a/a", 3): 4, ("a/a", 2): 5})) == "a/a:2@5,3@4;b/b:1@2"


def test_a_cut_is_the_same_in_whatever_order_it_is_written() -> None:
    """Equal places are equal cuts."""
    assert StreamCut.parse("a/b:5@7,3@9") == StreamCut.parse("a/b:3@9,5@7") == StreamCut.of("a/b", {3: 9, 5: 7})


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "a/b",
        "a/b:",
        "a/b:1",
        "a/b:1@",
        "a/b:@1",
        "a/b:1@2,",
        "a/b:1@2,,3@4",
        "a/b:-1@2",
        "a/b:1@-2",
        "a/b:1@2 ",
        " a/b:1@2",
        "a/b:1@2\n",
        "a/b:1.0@2",
        "a/b:1@2@3",
        "a/b:0x1@2",
        "a/b:1@1234567890123456789",
        "b:1@2",
        "a/b/c:1@2",
        "../b:1@2",
        None,
        5,
        b"a/b:1@2",
    ],
)
@pytest.mark.parametrize("parse", [EventPointer.parse, StreamCut.parse])
def test_what_is_no_place_is_refused(parse: Callable[[str], object], text: str) -> None:
    """Half a place would be another place."""
    with pytest.raises(BadArgument):
        parse(text)


@pytest.mark.parametrize("text", ["a/b:\u0661@2", "a/b:1@\uff12"])
def test_digits_are_those_of_ascii(text: str) -> None:
    """Python takes many more for digits; ``str()`` writes none of them."""
    with pytest.raises(BadArgument):
        EventPointer.parse(text)


def test_a_pointer_is_one_place() -> None:
    """A cut is not an event."""
    with pytest.raises(BadArgument, match="not several"):
        EventPointer.parse("a/b:1@2,3@4")


def test_a_cut_has_a_segment_once() -> None:
    """It would not be known which offset is meant."""
    with pytest.raises(BadArgument, match="name each segment once"):
        StreamCut.parse("a/b:1@2,1@4")


@pytest.mark.parametrize("text", ["a/b:1@2;a/b:3@4", "a/b:1@2;;", "nonsense", None])
def test_what_is_no_position_is_refused(text: str) -> None:
    """A stream has its place once, and nothing is passed over."""
    with pytest.raises(BadArgument):
        Position.parse(text)


def test_a_range_knows_its_size_and_can_be_sent_elsewhere() -> None:
    """Parallel readers are often other processes."""
    part = SegmentRange("a/b", 1, 100, 350)
    assert part.size == 250
    assert pickle.loads(pickle.dumps(part)) == part
