"""Names of streams; those of other things have their tests where they are used."""

from __future__ import annotations

import pytest

from penstock.errors import BadArgument
from penstock.model import check_name, check_stream_name


@pytest.mark.parametrize("name", ["a/b", "plant/readings", "0/9", "A.b_c-d/E.f_g-h", f"{'x' * 255}/{'y' * 255}"])
def test_a_scope_and_a_name_are_the_name_of_a_stream(name: str) -> None:
    """Letters, digits, '.', '_' and '-', of each up to 255."""
    check_stream_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a",
        "a/",
        "/b",
        "a/b/c",
        "a//b",
        "../b",
        "a/..",
        "a/b\n",
        " a/b",
        "a/b c",
        "a/ä",
        "a\\b",
        f"a/{'x' * 256}",
        "_a/b",
        "-a/b",
        None,
        5,
        b"a/b",
        ("a", "b"),
    ],
)
def test_anything_else_is_no_name_of_a_stream(name: object) -> None:
    """Colons, commas and the like stand between the parts of a place; a line's end would hide in any of them."""
    with pytest.raises(BadArgument, match=r"^invalid stream name .*: use the form scope/name"):
        check_stream_name(name)


def test_the_message_says_what_the_name_was_for() -> None:
    """A call may take several names."""
    with pytest.raises(BadArgument, match="invalid writer name 'a/b'"):
        check_name("writer", "a/b")
