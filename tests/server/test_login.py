"""The Authorization header."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from penstock.errors import NotAuthenticated
from penstock.server._login import login
from penstock.server._users import Users

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def users(tmp_path: Path) -> Users:
    users = Users.open(tmp_path / "users.json")
    users.add("anna", "geheim:ü")
    return users


def basic(text: bytes) -> str:
    return f"Basic {base64.b64encode(text).decode()}"


@pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC"])
def test_basic_is_name_and_password(users: Users, scheme: str) -> None:
    """A colon may be part of the password, and so may any letter."""
    header = basic("anna:geheim:ü".encode()).replace("Basic", scheme)
    assert login(users, header).name == "anna"


def test_bearer_is_a_token(users: Users) -> None:
    """Programs have one."""
    assert login(users, f"Bearer {users.token('anna', 60)}").name == "anna"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !",
        "Basic YQ",
        basic(b"anna"),
        basic(b"\xff:\xff"),
        basic(b"anna:wrong"),
        basic(b":"),
        "Bearer",
        "Bearer x.y",
        "Digest anna",
        "Negotiate",
    ],
)
def test_anything_else_is_refused(users: Users, header: str | None) -> None:
    """With one and the same error."""
    with pytest.raises(NotAuthenticated):
        login(users, header)
