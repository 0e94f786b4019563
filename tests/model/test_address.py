"""Addresses of servers: their form, and which ones name the same server."""

from __future__ import annotations

import pytest

from penstock.model import canonical_address, split_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A.example:1", "a.example:1"),
        ("127.0.0.1:01", "127.0.0.1:1"),
        ("LocalHost:1", "127.0.0.1:1"),
        ("[0::1]:1", "[::1]:1"),
        ("[2001:DB8::a]:1", "[2001:db8::a]:1"),
        ("[::ffff:10.0.0.1]:1", "10.0.0.1:1"),
        ("no address", "no address"),
    ],
)
def test_an_address_has_one_canonical_spelling(text: str, expected: str) -> None:
    """A server that counts as two because it is written in two ways would hold two of three copies."""
    assert canonical_address(text) == expected
    assert canonical_address(expected) == expected


@pytest.mark.parametrize(
    ("text", "parts"), [("a:1", ("a", 1)), ("[::1]:1", ("::1", 1)), ("a:65536", None), ("a", None)]
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int] | None) -> None:
    """What is no address is refused where it is entered, and not when a server is looked for there."""
    assert split_address(text) == parts
