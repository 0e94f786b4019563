"""The Authorization header, and what wrong passwords cost the clients that send them, and no others."""

from __future__ import annotations

import base64
import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import argon2
import pytest

from penstock.errors import LoginsBusy, NotAuthenticated, PenstockError, ServerBusy
from penstock.server import _login_queue
from penstock.server._login import Logins, network_of
from penstock.server._login_queue import (
    DELAY_MAX_S,
    FAILURES_FREE,
    FORGIVEN_EVERY_S,
    Failures,
    LoginQueue,
    Origin,
)
from penstock.server._users import USERS_FILE, Users
from penstock.testing import ManualClock
from tests.local.owners import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE, THERE = "ipv4:192.0.2.1:5000", "ipv4:192.0.2.2:5000"
SECONDS_MAX: Final = 60.0


@pytest.fixture
def users(tmp_path: Path) -> Users:
    users = Users.open(tmp_path / "users.json")
    users.add("anna", "geheim:ü")
    users.add("bert", "secret")
    return users


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def waits() -> list[float]:
    """For how long answers were held back."""
    return []


@pytest.fixture
def logins(users: Users, clock: ManualClock, waits: list[float]) -> Logins:
    return Logins(users, clock=clock, sleep=waits.append)


def basic(text: bytes) -> str:
    return f"Basic {base64.b64encode(text).decode()}"


RIGHT, WRONG = basic("anna:geheim:ü".encode()), basic(b"anna:wrong")


def outcome(logins: Logins, header: str | None, peer: str = HERE) -> str:
    try:
        return logins(header, peer)().name
    except PenstockError as error:
        return type(error).__name__


@pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC"])
def test_basic_is_name_and_password(logins: Logins, scheme: str) -> None:
    """A colon may be part of the password, and so may any letter."""
    assert outcome(logins, RIGHT.replace("Basic", scheme)) == "anna"


def test_bearer_is_a_token(logins: Logins, users: Users) -> None:
    """Programs have one."""
    assert outcome(logins, f"Bearer {users.token('anna', 60)}") == "anna"


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
def test_anything_else_is_refused(logins: Logins, header: str | None) -> None:
    """With one and the same error."""
    with pytest.raises(NotAuthenticated):
        logins(header, HERE)
    with pytest.raises(NotAuthenticated):
        logins.check(header, HERE)


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("ipv4:192.0.2.7:5000", "192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:5000", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:ffff::1]:5001", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:192.0.2.7]:5000", "192.0.2.7"),
        ("unix:/tmp/socket", ""),
    ],
)
def test_a_network_is_what_one_host_may_have(peer: str, network: str) -> None:
    """A host has as many addresses of IPv6 as it likes: each would be a new one that has done no wrong yet."""
    assert network_of(peer) == network


# Failures


def test_wrong_passwords_are_answered_ever_later_and_right_ones_at_once(
    logins: Logins, clock: ManualClock, waits: list[float]
) -> None:
    """A user may mistype; a program that guesses spends its time waiting. Others at its address do not."""
    for _ in range(FAILURES_FREE):
        assert outcome(logins, WRONG) == "NotAuthenticated"
    assert waits == []
    for _ in range(10):
        assert outcome(logins, WRONG) == "NotAuthenticated"
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, *[DELAY_MAX_S] * 5]
    waits.clear()
    assert outcome(logins, RIGHT) == "anna"
    assert outcome(logins, basic(b"bert:secret")) == "bert"
    assert outcome(logins, WRONG, THERE) == "NotAuthenticated"
    assert waits == [], "nor those at other addresses"
    clock.advance(20 * FORGIVEN_EVERY_S)
    assert outcome(logins, WRONG) == "NotAuthenticated"
    assert waits == [], "they are forgiven with time"
    assert logins.failed == FAILURES_FREE + 10 + 2


def test_a_login_that_succeeds_forgives_nothing(logins: Logins, waits: list[float]) -> None:
    """A user of the server could guess the passwords of others, and log in between as itself."""
    for number in range(3 * FAILURES_FREE):
        assert outcome(logins, basic(f"anna:{number}".encode())) == "NotAuthenticated"
        assert outcome(logins, basic(b"bert:secret")) == "bert"
    assert len(waits) == 2 * FAILURES_FREE


def test_a_damaged_file_of_users_is_for_the_log_and_not_for_clients(
    logins: Logins, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unauthenticated clients learned where the store lies, and those of HTTP got a server error."""
    path = tmp_path / USERS_FILE
    good, header = path.read_bytes(), basic(b"bert:secret")
    principal = logins(header, HERE)
    path.write_bytes(b"{nonsense")
    checks: list[Callable[[], object]] = [
        principal,
        lambda: logins(header, HERE),
        lambda: logins.check(header, HERE),
    ]
    for check in checks:
        with pytest.raises(ServerBusy, match="credentials cannot be checked now") as refused:
            check()
        assert str(tmp_path) not in str(refused.value)
    logged = [record for record in caplog.records if record.getMessage() == "credentials cannot be checked"]
    assert [str(path) in record.reason for record in logged] == [True], "once"  # type: ignore[attr-defined]
    path.unlink()
    path.mkdir()
    for check in checks:
        with pytest.raises(ServerBusy, match="credentials cannot be checked now"):
            check()
    path.rmdir()
    path.write_bytes(good)
    assert principal().name == logins.check(header, HERE).name == "bert"


@pytest.mark.parametrize("is_known", [True, False])
def test_old_tokens_slow_nobody_down(logins: Logins, users: Users, waits: list[float], is_known: bool) -> None:
    """A program with a token that has expired tries again and again, and others at its address did nothing wrong."""
    token = users.token("anna", 1e-9)
    if not is_known:
        users.revoke_tokens("anna")
    for _ in range(5 * FAILURES_FREE):
        assert outcome(logins, f"Bearer {token}") == "NotAuthenticated"
    assert logins.check(basic(b"bert:secret"), HERE).name == "bert", "no address is refused for it"
    assert outcome(logins, WRONG) == "NotAuthenticated"
    assert waits == []
    assert logins.failed == 5 * FAILURES_FREE + 1, "they are counted, and logged"


def test_a_missing_header_is_no_failed_login(logins: Logins) -> None:
    """A client that does not know yet that it needs one sends none."""
    assert outcome(logins, None) == "NotAuthenticated"
    assert logins.failed == 0


def test_failed_logins_are_logged_but_do_not_fill_the_log(
    logins: Logins, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A line says from where, how often, and for which user; a name that is none may be a password, and is not told."""
    caplog.set_level(logging.INFO, "penstock.server")
    for _ in range(50):
        outcome(logins, WRONG)
    outcome(logins, basic(b"hunter2:"), THERE)
    clock.advance(_login_queue.LINES_EVERY_S)
    outcome(logins, "Bearer leaked.token")
    lines = [(one.address, one.user, one.failures) for one in caplog.records]  # type: ignore[attr-defined]
    assert lines == [("192.0.2.1", "anna", 1), ("192.0.2.2", "(unknown)", 1), ("192.0.2.1", "(token)", 50)]
    assert "hunter2" not in caplog.text
    assert "leaked" not in caplog.text


def test_many_addresses_do_not_fill_the_log_either(
    logins: Logins, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the memory."""
    caplog.set_level(logging.INFO, "penstock.server")
    monkeypatch.setattr(_login_queue, "LINES_MAX", 5)
    monkeypatch.setattr(_login_queue, "REMEMBERED_MAX", 7)
    for number in range(20):
        outcome(logins, WRONG, f"ipv4:192.0.2.{number}:5000")
    assert len(caplog.records) == 5
    assert len(logins._failures._failed) == 7


def test_failures_are_counted_as_they_come(clock: ManualClock) -> None:
    """What is left of them decides, not whether one came a moment ago."""
    failures = Failures(clock)
    for _ in range(FAILURES_FREE + 3):
        failures.note(HERE)
    assert failures.wait_s(HERE) == 1.0
    assert failures.wait_s(THERE) == 0.0
    clock.advance(0.75)
    assert failures.wait_s(HERE) == 0.25
    clock.advance(3 * FORGIVEN_EVERY_S)
    assert failures.wait_s(HERE) == 0.0


# The queue


class Crowd:
    """Logins in a queue that checks one at a time, when the test says so."""

    def __init__(self, queue: LoginQueue) -> None:
        self._queue = queue
        self._served: SimpleQueue[str] = SimpleQueue()
        self._refused: SimpleQueue[str] = SimpleQueue()
        self._gate = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def come(self, network: str, name: str = "", peer: str = "") -> None:
        """Let another login come, and return when it waits, or was refused."""
        before = self._queue._places
        thread = threading.Thread(target=self._log_in, args=(Origin(network, peer), name), daemon=True)
        self._threads.append(thread)
        thread.start()
        while self._queue._places == before and thread.is_alive():
            thread.join(0.001)
        wait_until(lambda: len(self._queue._turns) + 1 >= self._queue._places)

    def _log_in(self, origin: Origin, name: str) -> None:
        try:
            with self._queue.turn(origin, name):
                self._served.put(origin.network + name)
                assert self._gate.acquire(timeout=SECONDS_MAX)
        except LoginsBusy:
            self._refused.put(origin.network + name)

    def served(self, count: int) -> list[str]:
        """Let so many checks end, one after another; return of which logins."""
        found = []
        for _ in range(count):
            found.append(self._served.get(timeout=SECONDS_MAX))
            self._gate.release()
        return found

    def refused(self) -> list[str]:
        return [self._refused.get() for _ in range(self._refused.qsize())]

    def end(self) -> None:
        self._gate.release(len(self._threads))
        for thread in self._threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
        assert not self._queue._lanes
        assert not self._queue._turns


@pytest.fixture
def queue() -> LoginQueue:
    return LoginQueue(checks=1, waiting=100)


def test_networks_take_turns(queue: LoginQueue) -> None:
    """A flood from one of them delays another by a check or two, not by all that wait."""
    crowd = Crowd(queue)
    for _ in range(20):
        crowd.come("here ")
    for name in "ab":
        crowd.come("there ", name)
    assert crowd.served(5) == ["here ", "here ", "there b", "here ", "there a"]
    crowd.end()


def test_the_newest_and_the_oldest_of_one_network_alternate(queue: LoginQueue) -> None:
    """A user that comes behind many guesses is soon checked, and none waits for ever, however many come."""
    crowd = Crowd(queue)
    for name in "abcdefg":
        crowd.come("", name)
    assert crowd.served(7) == list("abgcfde")
    crowd.end()


def test_a_connection_on_which_no_login_has_failed_does_not_wait_for_those_on_which_many_have(
    queue: LoginQueue,
) -> None:
    """Guesses come in great numbers on the same connections, and a user who comes anew has another."""
    crowd = Crowd(queue)
    queue.note_failed("guessing")
    for _ in range(20):
        crowd.come("here ", "guess", "guessing")
    crowd.come("here ", "anna", "fresh")
    assert crowd.served(3) == ["here guess", "here guess", "here anna"]
    crowd.end()


def test_few_of_one_network_wait_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each login that waits has a thread. Beyond so many they are refused unchecked."""
    monkeypatch.setattr(_login_queue, "SHARE_OF_NETWORK", 0.8)
    queue = LoginQueue(checks=1, waiting=10)
    crowd = Crowd(queue)
    queue.note_failed("guessing")
    for peer in ["guessing", "fresh"] * 5:
        crowd.come("here", peer=peer)
    for _ in range(3):
        crowd.come("there")
    assert crowd.refused() == ["here", "here", "there"]
    crowd.end()


def test_a_user_that_has_logged_in_from_a_network_has_a_turn_of_its_own_there(
    queue: LoginQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many share an address: one of them that floods keeps no user out who was there before."""
    monkeypatch.setattr(_login_queue, "REMEMBERED_MAX", 1)
    crowd = Crowd(queue)
    queue.note_known("here ", "bert")
    queue.note_known("here ", "anna")
    for _ in range(25):
        crowd.come("here ")
    crowd.come("here ", "anna")
    crowd.come("here ", "bert")
    assert crowd.refused() == ["here bert"], "that was too long ago"
    assert crowd.served(3) == ["here ", "here ", "here anna"]
    crowd.end()


@pytest.mark.parametrize("checks", [1, 4])
def test_few_passwords_are_checked_at_once(users: Users, monkeypatch: pytest.MonkeyPatch, checks: int) -> None:
    """Each takes 64 MiB: a thousand wrong ones must not take all the memory. A large machine may check more."""
    logins = Logins(users, checks=checks, sleep=lambda _: None)
    under_way, most, lock = 0, 0, threading.Lock()
    meeting = threading.Barrier(checks)

    def verify(*_: object) -> bool:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        meeting.wait(timeout=SECONDS_MAX)
        with lock:
            under_way -= 1
        return False

    monkeypatch.setattr(argon2.PasswordHasher.func, "verify", verify)  # type: ignore[attr-defined]
    guess: Callable[[int], str] = lambda number: outcome(logins, basic(f"user-{number}:wrong".encode()))  # noqa: E731
    threads = [threading.Thread(target=guess, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == checks


def test_a_login_that_is_refused_unchecked_is_counted(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure, and the client tries again; one that is remembered is not refused."""
    assert outcome(logins, RIGHT) == "anna"
    monkeypatch.setattr(logins._queue, "_waiting_max", 0)
    assert outcome(logins, basic(b"bert:secret")) == "LoginsBusy"
    assert outcome(logins, RIGHT) == "anna"
    assert (logins.refused, logins.failed) == (1, 0)
