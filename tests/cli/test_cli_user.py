"""``penstock user``."""

from __future__ import annotations

import base64
import json
import pty
from typing import TYPE_CHECKING

import pytest

from penstock.errors import NotAuthenticated
from penstock.server._users import Users

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def folder(here: Path) -> None:
    here.joinpath("penstock-data").mkdir()


@pytest.fixture
def users(here: Path) -> Users:
    return Users.open(here / "penstock-data" / "users.json")


def test_password_is_the_first_line_of_the_input(call: Call, users: Users) -> None:
    """On the command line it would be in the history of the shell, and in the list of processes."""
    result = call("user", "add", "anna", stdin=b"secret word \nmore\n")
    assert (result.code, result.out) == (0, "anna: added\n")
    assert users.log_in("anna", "secret word ").name == "anna"


def test_password_is_asked_for_twice_on_a_terminal(call: Call, users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password is not shown, so a user may have typed something else."""
    asked: list[str] = []

    def answer(prompt: str, *_: object) -> str:
        asked.append(prompt)
        return "secret"

    monkeypatch.setattr("getpass.getpass", answer)
    ours, theirs = pty.openpty()
    with open(theirs, "rb", buffering=0) as terminal, open(ours, "wb", buffering=0):
        result = call("user", "add", "anna", stdin=terminal)
    assert result.code == 0, result.err
    assert len(asked) == 2
    assert users.log_in("anna", "secret").name == "anna"


def test_user_that_is_there_stays_unless_replaced(call: Call, users: Users) -> None:
    """What was granted stays in any case."""
    call("user", "add", "anna", stdin=b"old\n")
    users.grant("anna", "read", "*")
    result = call("user", "add", "anna", stdin=b"new\n")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "replace" in result.err
    assert call("user", "add", "anna", "--replace", stdin=b"new\n").out == "anna: password replaced\n"
    assert users.current(users.log_in("anna", "new")).may("read", "plant/readings")


def test_revoke_says_what_is_still_granted(call: Call) -> None:
    """An administrator who is told that a user may no longer read believes it."""
    call("user", "add", "anna", stdin=b"secret\n")
    for grant in ("read *", "read plant/*", "admin other/*", "write plant/readings"):
        call("user", "grant", "anna", *grant.split())
    refused = call("user", "revoke", "anna", "read", "plant/readings")
    assert refused.code == 1
    assert refused.err == "penstock: anna has no grant read plant/readings, but read *, read plant/*\n"
    assert call("user", "revoke", "anna", "read", "*").out == (
        "anna: revoked read *; still granted: admin other/*, read plant/*\n"
    )
    assert call("user", "revoke", "anna", "read", "plant/*").out == "anna: revoked read plant/*\n"


@pytest.mark.parametrize("stdin", [b"", b"\n", b"x" * 2000])
def test_password_that_is_none_is_refused(call: Call, users: Users, stdin: bytes) -> None:
    """A script whose secret is missing must not make a user without a password."""
    assert call("user", "add", "anna", stdin=stdin).code == 2
    assert list(users) == []


def test_grants_are_listed(call: Call) -> None:
    """A line for each user, or JSON."""
    for name in ("anna", "bert"):
        call("user", "add", name, stdin=b"secret\n")
    assert call("user", "grant", "anna", "read", "*").out == "anna: may read *\n"
    call("user", "grant", "anna", "admin", "plant/*")
    assert call("user", "ls").lines == ["anna\tadmin plant/*,read *", "bert\t"]
    call("user", "revoke", "anna", "read", "*")
    grants = [{"permission": "admin", "pattern": "plant/*"}]
    expected = [{"name": "anna", "grants": grants}, {"name": "bert", "grants": []}]
    assert json.loads(call("user", "ls", "--json").out) == expected


@pytest.mark.parametrize(
    "command", ["ls", "add anna", "rm anna", "grant anna read *", "revoke anna read *", "token anna"]
)
def test_folder_that_is_not_there_is_refused(call: Call, here: Path, command: str) -> None:
    """A name that was mistyped is told: it gets no folder of its own, with users that no server will ever ask."""
    result = call("user", *command.split(), "--store", "typo", stdin=b"secret\n")
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert result.err.startswith("penstock: no folder typo: name the store's folder with --store")
    assert not here.joinpath("typo").exists()


def test_removed_user_is_gone(call: Call, users: Users) -> None:
    """To remove one that is not there is a failure."""
    call("user", "add", "anna", stdin=b"secret\n")
    assert call("user", "rm", "anna").code == 0
    assert list(users) == []
    result = call("user", "rm", "anna")
    assert (result.code, result.err) == (1, "penstock: no user 'anna': add the user with penstock user add\n")


def test_token_is_printed_and_nothing_else(call: Call, users: Users) -> None:
    """So that a script can take it as it is."""
    call("user", "add", "anna", stdin=b"secret\n")
    token = call("user", "token", "anna", "--lifetime", "1h").out.removesuffix("\n")
    assert users.log_in_by_token(token).name == "anna"
    made = json.loads(call("user", "token", "anna", "--json").out)
    assert users.log_in_by_token(made["token"]).name == made["user"] == "anna"


@pytest.mark.parametrize(
    "arguments",
    [
        "grant anna delete *",
        "grant anna read plant",
        "revoke anna read */x",
        "token anna --lifetime never",
        "token anna --lifetime 0s",
        "add no/name",
        "ls --store memory:",
        "ls --store penstock://localhost:7367",
    ],
)
def test_wrong_call_exits_with_2(call: Call, users: Users, arguments: str) -> None:
    """And changes nothing."""
    users.add("anna", "secret")
    assert call("user", *arguments.split(), stdin=b"x\n").code == 2
    assert [user.grants for user in users] == [()]


def test_mistakes_name_what_to_type(call: Call, users: Users) -> None:
    """A pattern is not the name of a stream, and a password is replaced by an option."""
    users.add("anna", "secret")
    assert (
        "use '*' for all streams, 'plant/*' for those of a scope" in call("user", "grant", "anna", "read", "plant").err
    )
    assert "replace the password with --replace" in call("user", "add", "anna", stdin=b"x\n").err


def test_damaged_file_is_told(call: Call, users: Users, here: Path) -> None:
    """With its path."""
    users.add("anna", "secret")
    here.joinpath("penstock-data", "users.json").write_text("{")
    result = call("user", "ls")
    assert result.code == 1
    assert "penstock-data/users.json is damaged" in result.err


def test_mac_key_is_printed_once_replaced_and_revoked(call: Call, users: Users) -> None:
    """A user has one key: the one that replaced all others."""
    users.add("anna", "secret")
    old = call("user", "mac-key", "anna").out.removesuffix("\n")
    new = json.loads(call("user", "mac-key", "anna", "--json").out)["mac_key"]
    assert len(base64.b64decode(old, validate=True)) == len(base64.b64decode(new, validate=True)) == 32
    assert users.log_in_by_mac("anna", lambda key: key == base64.b64decode(new)).name == "anna"
    with pytest.raises(NotAuthenticated):
        users.log_in_by_mac("anna", lambda key: key == base64.b64decode(old))
    assert call("user", "mac-key", "anna", "--revoke").out == "anna: the MAC key is revoked\n"
    assert json.loads(call("user", "mac-key", "anna", "--revoke", "--json").out) == {"user": "anna", "revoked": False}
    with pytest.raises(NotAuthenticated):
        users.log_in_by_mac("anna", lambda _: True)
    assert call("user", "mac-key", "bert").code == 1


def test_tokens_are_listed_and_revoked(call: Call, users: Users) -> None:
    """By their ids: a token is shown once, and need not be at hand to be revoked."""
    call("user", "add", "anna", stdin=b"secret\n")
    made = [call("user", "token", "anna", "--lifetime", time).out.strip() for time in ("1h", "2h", "3h")]
    ids = [token.partition(".")[0] for token in made]
    listed = [line.split("\t") for line in call("user", "tokens").lines]
    assert [row[:2] for row in listed] == [[token_id, "anna"] for token_id in ids]
    shown = json.loads(call("user", "tokens", "anna", "--json").out)
    assert [(one["id"], str(one["expires"])) for one in shown] == [(row[0], row[2]) for row in listed]
    assert not any(token.partition(".")[2] in call("user", "tokens").out for token in made)
    assert call("user", "expire", "anna", "--token", ids[0]).out == "anna: 1 token revoked\n"
    assert call("user", "expire", "anna", "--token", made[1]).out == "anna: 1 token revoked\n", (
        "the whole token will do"
    )
    assert [one.token_id for one in users.tokens()] == [ids[2]]
    result = call("user", "expire", "anna", "--token", ids[0])
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "list them with penstock user tokens" in result.err
    assert call("user", "expire", "anna").out == "anna: 1 token revoked\n"
    assert call("user", "tokens", "anna").lines == []
