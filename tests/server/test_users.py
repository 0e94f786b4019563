"""Users: who they are, what they may do, and the file that says so."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import argon2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    BadArgument,
    FolderUnusable,
    NoSuchToken,
    NoSuchUser,
    NotAuthenticated,
    PenstockError,
    UserExists,
    UsersCorrupt,
    UsersUnreadable,
)
from penstock.server import _users, _users_file
from penstock.server._users import Grant, User, Users
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.wire.operations import Permission

REAL_HASHER = argon2.PasswordHasher
GOLDEN = """\
{
  "format": 1,
  "tokens": {
    "0123456789abcdef": {
      "digest": "56399454ab842fc9d07d85c34f30b36ce91371dd30e21776ee610998b7473d0f",
      "expires": 1700003600.0,
      "user": "anna"
    }
  },
  "users": {
    "anna": {
      "grants": [
        [
          "admin",
          "plant/*"
        ],
        [
          "read",
          "*"
        ]
      ],
      "password": "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$39tbUSD70LTTCIyCWo9t5sDidhNPptw1P94ISzTyALc"
    }
  }
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "users.json"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def users(path: Path, clock: ManualClock) -> Users:
    users = Users.open(path, clock=clock)
    users.add("anna", "secret")
    return users


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every hash that a password is checked against, in order."""
    seen: list[str] = []
    real = Users._is_right

    def noted(self: Users, hashed: str, password: str) -> bool:
        seen.append(hashed)
        return real(self, hashed, password)

    monkeypatch.setattr(Users, "_is_right", noted)
    return seen


def refused(users: Users, name: str, password: str) -> bool:
    try:
        users.log_in(name, password)
    except NotAuthenticated:
        return True
    return False


# Passwords


def test_right_password_tells_who_it_is(users: Users) -> None:
    """And a new user may do nothing."""
    assert users.current(users.log_in("anna", "secret")) == User("anna", ())


@pytest.mark.parametrize("password", ["", "Secret", "secret ", "secret\0", "s" * 5000, "\udc80"])
def test_wrong_password_is_refused(users: Users, password: str) -> None:
    """Whatever it looks like."""
    assert refused(users, "anna", password)


def test_refusal_does_not_say_what_was_wrong(users: Users) -> None:
    """A message that differs would show who has an account here."""
    messages = set()
    for name, password in (("anna", "wrong"), ("nobody", "secret"), ("\udc80\0", "")):
        with pytest.raises(NotAuthenticated) as refusal:
            users.log_in(name, password)
        messages.add(str(refusal.value))
    assert len(messages) == 1


def test_unknown_user_costs_a_check_as_a_known_one_does(users: Users, checks: list[str]) -> None:
    """Or the time it takes tells who has an account here."""
    assert refused(users, "anna", "wrong")
    assert refused(users, "nobody", "wrong")
    assert len(checks) == 2
    assert checks[1] == _users._NOBODY
    assert not REAL_HASHER().check_needs_rehash(_users._NOBODY), "it costs what the others cost"


def test_right_password_is_remembered_until_it_is_not_used(users: Users, checks: list[str], clock: ManualClock) -> None:
    """A client sends it with every call, and a check takes as long as a hundred calls, and waits for others."""
    for _ in range(3):
        users.log_in("anna", "secret")
    assert len(checks) == 1
    assert refused(users, "anna", "wrong")
    assert len(checks) == 2, "only the right one is remembered"
    for _ in range(3):
        clock.advance(59)
        users.log_in("anna", "secret")
    assert len(checks) == 2
    clock.advance(61)
    users.log_in("anna", "secret")
    assert len(checks) == 3


def test_right_password_is_remembered_for_no_longer_when_the_clock_is_set_back(
    users: Users, checks: list[str], clock: ManualClock
) -> None:
    """Nor for less when it is set forward."""
    users.log_in("anna", "secret")
    clock.set_forward(3600)
    users.log_in("anna", "secret")
    assert len(checks) == 1
    clock.advance(-7200)
    clock.advance(61)
    users.log_in("anna", "secret")
    assert len(checks) == 2


def test_replaced_password_is_not_remembered(users: Users, path: Path) -> None:
    """Passwords are replaced because somebody else knows the old one."""
    users.log_in("anna", "secret")
    Users.open(path).add("anna", "better", replace=True)
    assert refused(users, "anna", "secret")
    assert users.log_in("anna", "better").name == "anna"


def test_removed_user_is_refused_at_once(users: Users, path: Path) -> None:
    """By a server that runs, too, which remembers the password."""
    users.log_in("anna", "secret")
    Users.open(path).remove("anna")
    assert refused(users, "anna", "secret")


def test_a_login_holds_as_long_as_its_password(users: Users, path: Path, checks: list[str], clock: ManualClock) -> None:
    """What is under way for long is asked again and again whether it may go on, which costs no check."""
    login = users.log_in("anna", "secret")
    clock.advance(3600)
    assert users.current(login) == User("anna", ())
    assert len(checks) == 1
    Users.open(path).add("anna", "secret", replace=True)
    with pytest.raises(NotAuthenticated):
        users.current(login)
    assert len(checks) == 1
    login = users.log_in("anna", "secret")
    Users.open(path).remove("anna")
    with pytest.raises(NotAuthenticated):
        users.current(login)


# Tokens


def test_token_stands_for_its_user_until_it_expires(users: Users, clock: ManualClock) -> None:
    """Programs get one, so that no password lies in their configuration for ever."""
    users.grant("anna", "read", "*")
    token = users.token("anna", 3600)
    assert users.current(users.log_in_by_token(token)) == User("anna", (Grant("read", "*"),))
    clock.advance(3600)
    with pytest.raises(NotAuthenticated):
        users.log_in_by_token(token)


def test_wrong_token_is_refused(users: Users) -> None:
    """Be it nearly right, somebody else's secret, or garbage."""
    users.add("bert", "hidden")
    token, other = users.token("anna", 3600), users.token("bert", 3600)
    mixed = token.partition(".")[0] + "." + other.partition(".")[2]
    for wrong in (token + "x", token[:-1], token.partition(".")[2], mixed, "", ".", "\udc80.\udc80", "a" * 100_000):
        with pytest.raises(NotAuthenticated):
            users.log_in_by_token(wrong)


def test_token_ends_with_its_user(users: Users) -> None:
    """And does not come back with one of the same name."""
    token = users.token("anna", 3600)
    users.remove("anna")
    users.add("anna", "secret")
    with pytest.raises(NotAuthenticated):
        users.log_in_by_token(token)


def test_tokens_do_not_pile_up(users: Users, clock: ManualClock, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that makes one at every start would fill the file."""
    monkeypatch.setattr(_users, "TOKENS_MAX", 3)
    for _ in range(3):
        users.token("anna", 60)
    with pytest.raises(BadArgument, match="has 3 tokens"):
        users.token("anna", 60)
    clock.advance(60)
    users.token("anna", 60)
    assert path.read_text().count("digest") == 1


def test_the_oldest_session_gives_way_to_a_new_token(
    users: Users, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who never signs out of the console would have to wait for half a day; tokens of programs stay."""
    monkeypatch.setattr(_users, "TOKENS_MAX", 3)
    users.add("bert", "hidden")
    kept = [users.token("anna", 10), users.token("bert", 10, is_session=True)]
    oldest, next_one = users.token("anna", 60, is_session=True), ""
    for _ in range(2):
        clock.advance(1)
        next_one = users.token("anna", 60, is_session=True)
    for token in [*kept, next_one]:
        users.log_in_by_token(token)
    with pytest.raises(NotAuthenticated):
        users.log_in_by_token(oldest)
    for _ in range(2):
        users.token("anna", 60)
    with pytest.raises(BadArgument, match="has 3 tokens"):
        users.token("anna", 60, is_session=True)


def test_file_tells_no_secret(users: Users, path: Path) -> None:
    """It ends up in backups."""
    token = users.token("anna", 3600)
    text = path.read_text()
    assert "secret" not in text
    assert token.partition(".")[2] not in text
    assert path.stat().st_mode & 0o777 == 0o600


# Permissions


@pytest.mark.parametrize(
    ("permission", "pattern", "wanted", "stream", "allowed"),
    [
        ("read", "*", "read", "plant/readings", True),
        ("read", "plant/*", "read", "plant/readings", True),
        ("read", "plant/readings", "read", "plant/readings", True),
        ("read", "plant/readings", "read", "plant/readings2", False),
        ("read", "plant/*", "read", "plant2/readings", False),
        ("read", "plant/*", "write", "plant/readings", False),
        ("write", "plant/*", "read", "plant/readings", False),
        ("admin", "plant/*", "write", "plant/readings", True),
        ("admin", "plant/*", "read", "plant/readings", True),
        ("admin", "plant/*", "admin", "office/mail", False),
        ("write", "*", "admin", "plant/readings", False),
    ],
)
def test_grant_permits_what_it_says(
    permission: Permission, pattern: str, wanted: Permission, stream: str, allowed: bool
) -> None:
    """And nothing else."""
    assert User("anna", (Grant(permission, pattern),)).may(wanted, stream) == allowed


NAMES = st.text("ab", min_size=1, max_size=2)
PATTERNS = st.one_of(st.just("*"), NAMES.map("{}/*".format), st.tuples(NAMES, NAMES).map("/".join))
PERMISSIONS: st.SearchStrategy[Permission] = st.sampled_from(["read", "write", "admin"])


def permitted(grants: set[tuple[Permission, str]], permission: Permission, scope: str, name: str) -> bool:
    """What the grants permit, said in another way."""
    patterns = ("*", f"{scope}/*", f"{scope}/{name}")
    return any((one, pattern) in grants for one in (permission, "admin") for pattern in patterns)


@given(st.sets(st.tuples(PERMISSIONS, PATTERNS)), PERMISSIONS, NAMES, NAMES)
def test_what_was_not_granted_is_denied(
    grants: set[tuple[Permission, str]], permission: Permission, scope: str, name: str
) -> None:
    """For every set of grants and every question."""
    user = User("anna", tuple(Grant(*one) for one in grants))
    assert user.may(permission, f"{scope}/{name}") == permitted(grants, permission, scope, name)


def test_revoked_is_denied(users: Users) -> None:
    """Exactly what was granted can be taken back; to take back what was not changes nothing."""
    users.grant("anna", "read", "plant/*")
    users.grant("anna", "read", "*")
    users.revoke("anna", "write", "*")
    users.revoke("anna", "read", "*")
    user = users.current(users.log_in("anna", "secret"))
    assert user.grants == (Grant("read", "plant/*"),)
    assert not user.may("read", "office/mail")


@pytest.mark.parametrize(
    "pattern", ["", "plant", "plant/", "/x", "*/x", "pl*/x", "plant/re*", "**", "a/b/c", "a/*/*", 7]
)
def test_pattern_that_means_nothing_is_refused(users: Users, pattern: str) -> None:
    """A grant that covers nothing, or more than its author meant, is noticed when it is made."""
    with pytest.raises(BadArgument):
        users.grant("anna", "read", pattern)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda users: users.add("anna", "other"), UserExists),
        (lambda users: users.add("no/name", "x"), BadArgument),
        (lambda users: users.add("bert", ""), BadArgument),
        (lambda users: users.add("bert", "x" * 1025), BadArgument),
        (lambda users: users.add("bert", b"x"), BadArgument),
        (lambda users: users.remove("bert"), NoSuchUser),
        (lambda users: users.grant("bert", "read", "*"), NoSuchUser),
        (lambda users: users.grant("anna", "delete", "*"), BadArgument),
        (lambda users: users.revoke("bert", "read", "*"), NoSuchUser),
        (lambda users: users.token("bert", 60), NoSuchUser),
        (lambda users: users.token("anna", 0), BadArgument),
        (lambda users: users.token("anna", float("inf")), BadArgument),
    ],
)
def test_wrong_change_is_refused_and_changes_nothing(
    users: Users, path: Path, call: object, error: type[PenstockError]
) -> None:
    """Half a change would be worse."""
    before = path.read_bytes()
    assert callable(call)
    with pytest.raises(error):
        call(users)
    assert path.read_bytes() == before


# The file


def test_users_outlive_the_process(users: Users, path: Path) -> None:
    """Names come in order."""
    users.add("Zoe", "hidden")
    users.grant("anna", "write", "plant/*")
    again = Users.open(path)
    assert list(again) == [User("Zoe", ()), User("anna", (Grant("write", "plant/*"),))]
    assert again.log_in("Zoe", "hidden").name == "Zoe"


def test_no_file_is_no_user(tmp_path: Path) -> None:
    """And to look for users makes no file."""
    users = Users.open(tmp_path / "users.json")
    assert list(users) == []
    assert refused(users, "anna", "secret")
    assert list(tmp_path.iterdir()) == []


def test_change_on_disk_is_known_with_the_next_call(users: Users, path: Path) -> None:
    """An administrator who takes a permission back does not have to start the server again."""
    other = Users.open(path)
    other.grant("anna", "read", "*")
    login = users.log_in("anna", "secret")
    assert users.current(login).may("read", "plant/readings")
    other.revoke("anna", "read", "*")
    assert not users.current(login).may("read", "plant/readings")


def test_file_of_format_1_is_understood_for_ever(path: Path) -> None:
    """It is written to disk, so its form is a promise."""
    path.parent.mkdir()
    path.write_text(GOLDEN)
    users = Users.open(path, clock=ManualClock(1_700_000_000))
    grants = (Grant("admin", "plant/*"), Grant("read", "*"))
    assert users.current(users.log_in("anna", "secret")) == User("anna", grants)
    assert users.log_in_by_token("0123456789abcdef.the secret of a token").name == "anna"
    users.grant("anna", "read", "*")
    assert path.read_text() == GOLDEN, "and what is written is what was read"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2}',
        '{"users": {"a": {}}}',
        '{"users": {"a b": {"password": ""}}}',
        '{"users": {"a": {"password": "", "grants": [["read", "o*"]]}}}',
        '{"users": {"a": {"password": "", "grants": [["read", "plant/r*"]]}}}',
        '{"users": {"a": {"password": "", "grants": [["write", ""]]}}}',
        '{"users": {"a": {"password": "", "grants": [["own", "*"]]}}}',
        '{"more": 1}',
        "\xff",
        '{"tokens": {"a": 1}}',
    ],
)
def test_damaged_file_is_an_error_that_names_it(users: Users, path: Path, text: str) -> None:
    """It must not look as if there were no users; nor is it written over."""
    path.write_bytes(text.encode("latin-1"))
    for call in (
        lambda: users.log_in("anna", "secret"),
        lambda: users.add("bert", "x"),
        lambda: Users.open(path),
    ):
        with pytest.raises(UsersCorrupt, match=str(path)):
            call()
    assert path.read_bytes() == text.encode("latin-1")


def test_endless_file_is_not_read_to_its_end(path: Path, users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every length is checked before memory is taken for it; what was read already is good."""
    assert len(list(users)) == 1
    monkeypatch.setattr(_users_file, "_FILE_SIZE_MAX", 10)
    with pytest.raises(UsersCorrupt, match="larger than 10 bytes"):
        Users.open(path)
    assert users.log_in("anna", "secret").name == "anna"


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_not_a_file_is_not_read_for_one(path: Path, users: Users, put: Callable[[Path], None]) -> None:
    """A pipe kept every call waiting, and the server from ending; a device would fill the memory."""
    assert len(list(users)) == 1
    path.unlink()
    put(path)
    for call in (lambda: users.log_in("anna", "secret"), lambda: Users.open(path)):
        with pytest.raises(UsersUnreadable, match=r"users\.json: it is not a regular file; make it a file"):
            call()


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to restore from a backup: its permissions are wrong, or those of its folder."""
    tmp_path.joinpath("data").touch()
    with pytest.raises(UsersUnreadable, match="Not a directory"):
        Users.open(tmp_path / "data" / "users.json")
    tmp_path.joinpath("users.json").touch()

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # permissions would not keep root out
    with pytest.raises(UsersUnreadable, match=r"users\.json: Permission denied"):
        Users.open(tmp_path / "users.json")


@pytest.fixture
def full_disk(users: Users, monkeypatch: pytest.MonkeyPatch) -> Iterator[Users]:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        yield users


def test_failed_write_changes_nothing(full_disk: Users, path: Path) -> None:
    """The old file stays until the new one is safe."""
    before = path.read_bytes()
    with pytest.raises(FolderUnusable, match="No space left"):
        full_disk.add("bert", "x")
    assert path.read_bytes() == before


def test_draft_of_a_crash_is_not_in_the_way(users: Users, path: Path) -> None:
    """A process that ended in the middle of a change leaves one."""
    path.with_name("users.json.new").write_text("{")
    users.add("bert", "x")
    assert [user.name for user in users] == ["anna", "bert"]
    assert sorted(os.listdir(path.parent)) == ["server.lock", "users.json"]


def test_changes_at_once_are_all_kept(users: Users, path: Path) -> None:
    """Each reads, changes and writes the whole file; none may undo another."""
    threads = [threading.Thread(target=Users.open(path).add, args=(f"user-{n}", "x")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(users)) == 9


# Tokens that are revoked


def test_tokens_are_listed_without_their_secrets(users: Users, clock: ManualClock) -> None:
    """An administrator sees who could come in, and until when; by the id, which the token begins with."""
    users.add("bert", "hidden")
    late, soon, others = users.token("anna", 7200), users.token("anna", 3600), users.token("bert", 60)
    ids = [token.partition(".")[0] for token in (others, soon, late)]
    assert [(one.token_id, one.user) for one in users.tokens()] == list(zip(ids, ["bert", "anna", "anna"], strict=True))
    assert [one.expires - clock.now() for one in users.tokens("anna")] == [3600, 7200]
    clock.advance(3600)
    assert [one.token_id for one in users.tokens()] == [ids[2]], "what has expired is not valid"
    with pytest.raises(NoSuchUser):
        users.tokens("nobody")


def test_revoked_token_is_refused_and_others_stay(users: Users, path: Path) -> None:
    """By a server that runs, too; one that has leaked must not be of use until it expires."""
    leaked, kept = users.token("anna", 3600), users.token("anna", 3600)
    assert users.log_in_by_token(leaked).name == "anna"
    assert Users.open(path, clock=users._clock).revoke_tokens("anna", leaked.partition(".")[0]) == 1
    with pytest.raises(NotAuthenticated, match="revoked"):
        users.log_in_by_token(leaked)
    assert users.log_in_by_token(kept).name == "anna"
    assert users.revoke_tokens("anna") == 1
    assert users.tokens() == []
    assert users.revoke_tokens("anna") == 0


def test_a_token_of_another_user_is_not_revoked(users: Users) -> None:
    """A mistyped id, or name, is told."""
    users.add("bert", "hidden")
    token_id = users.token("bert", 3600).partition(".")[0]
    for name, wrong in (("anna", token_id), ("bert", "0" * 16)):
        with pytest.raises(NoSuchToken, match="list them with penstock user tokens"):
            users.revoke_tokens(name, wrong)
    with pytest.raises(NoSuchUser):
        users.revoke_tokens("nobody")
    assert [one.token_id for one in users.tokens()] == [token_id]


def test_tokens_end_with_a_new_password(users: Users) -> None:
    """A thief who knew the old one may have made some."""
    users.add("bert", "hidden")
    token, other = users.token("anna", 3600), users.token("bert", 3600)
    users.add("anna", "better", replace=True)
    with pytest.raises(NotAuthenticated):
        users.log_in_by_token(token)
    assert users.log_in_by_token(other).name == "bert"
