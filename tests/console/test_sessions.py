"""Sessions: how they begin and end, and requests that no page of ours has sent."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import LimitReached, LoginsBusy, NotAuthenticated
from penstock.server import Server, _login_queue, _users
from penstock.server._config import Config
from penstock.server._console import SESSION_S, ConsoleAccess
from penstock.server._limits import Limits
from penstock.server._login import Logins
from penstock.server._login_queue import FAILURES_FREE
from penstock.server._users import USERS_FILE, Users
from penstock.testing import ManualClock
from tests.console.client import PASSWORD, Client
from tests.local.owners import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.console.conftest import Served, _Serving

PEER: Final = "http:[192.0.2.7]:4000"
CHANGE: Final = {"name": "plant/by-another-site", "segments": 1}


def test_a_session_begins_with_a_password_and_ends_with_its_page(served: Served) -> None:
    """Who leaves a computer signs out, and the cookie that may be left there is worth nothing."""
    client = served.client("rita")
    assert client.get("session").json["user"] == "rita"
    assert client.sign_out().status == 200
    assert client.get("session").json == {"user": None, "has_users": True}
    assert client.get("streams").status == 401
    assert client.sign_out().status == 200


def test_no_script_and_no_other_site_gets_the_cookie(served: Served) -> None:
    """A script in an event that got through every other check would find no secret to send away."""
    cookie = served.client().sign_in("rita").headers["Set-Cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/console", f"max-age={SESSION_S}"} <= parts
    assert "secure" not in parts  # there is no TLS
    assert str(served.server.http_port) in cookie  # two servers on one host do not overwrite each other's


def test_with_tls_the_cookie_is_sent_over_tls_only(serve: Callable[..., _Serving]) -> None:
    """A page of the same host without TLS would otherwise send it in the clear."""
    serving = serve(tls=True)
    server = serving._server
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with server, closing(HTTPSConnection("127.0.0.1", server.http_port, timeout=30, context=context)) as connection:
        headers = {"Origin": f"https://127.0.0.1:{server.http_port}", "Content-Type": "application/json"}
        connection.request("POST", "/console/api/session", '{"user": "rita", "password": "secret"}', headers)
        response = connection.getresponse()
        assert response.status == 200
        assert "; Secure" in response.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "credentials",
    [("rita", "wrong"), ("rita", ""), ("nobody", PASSWORD), ("", ""), ("rita:secret", ""), ("rita\udcff", "\udcff")],
)
def test_wrong_credentials_begin_no_session(served: Served, credentials: tuple[str, str]) -> None:
    """The answer is the same for an unknown user, so that it reveals no names."""
    answer = served.client().sign_in(*credentials)
    assert answer.status in {400, 401}  # 400: it is no JSON
    assert "Set-Cookie" not in answer.headers


def test_a_server_says_that_it_has_no_users_yet_and_never_how_many_it_has(tmp_path: Path) -> None:
    """A fresh server refuses every password; whoever has just started it would look for a mistake of their own."""
    users = Users.open(tmp_path / USERS_FILE)
    with Server(Config(store=str(tmp_path), port=0, http_port=0)) as server:
        client = Client(server.http_port)
        assert client.get("session").json == {"user": None, "has_users": False}
        assert client.sign_in("anna").status == 401
        users.add("anna", PASSWORD)
        assert client.get("session").json == {"user": None, "has_users": True}
        assert client.sign_in("anna").status == 200
        (tmp_path / USERS_FILE).write_text("damaged")
        assert (client.get("session").status, client.get("session").error) == (503, "ServerBusy")


def test_who_never_signs_out_can_still_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session lasts for half a day, and a script may begin one for each call."""
    monkeypatch.setattr(_users, "TOKENS_MAX", 3)
    users = Users.open(tmp_path / USERS_FILE)
    users.add("rita", PASSWORD)
    access = ConsoleAccess(Logins(users), Limits())
    sessions = [access.sign_in("rita", PASSWORD, PEER).token for _ in range(4)]
    assert access.principal(sessions[-1], PEER).name == "rita"
    with pytest.raises(NotAuthenticated):
        access.principal(sessions[0], PEER)


@pytest.fixture
def slow_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every wrong password be answered after three seconds."""
    monkeypatch.setattr(_login_queue, "FAILURES_FREE", 0)
    monkeypatch.setattr(_login_queue, "DELAY_MIN_S", 3.0)
    monkeypatch.setattr(_login_queue, "DELAY_MAX_S", 3.0)


def test_wrong_passwords_are_slowed_down(tmp_path: Path) -> None:
    """A program that tries passwords gets no further with the console than with the other ports."""
    waits: list[float] = []
    users = Users.open(tmp_path / USERS_FILE)
    users.add("rita", PASSWORD)
    access = ConsoleAccess(Logins(users, clock=ManualClock(), sleep=waits.append), Limits())
    for number in range(FAILURES_FREE + 3):
        with pytest.raises(NotAuthenticated):
            access.sign_in("rita", f"guess-{number}", PEER)
    assert waits == [0.25, 0.5, 1.0]
    assert access.sign_in("rita", PASSWORD, PEER).token
    assert waits == [0.25, 0.5, 1.0], "a correct password is not held back"


@pytest.mark.usefixtures("slow_refusals")
def test_wrong_passwords_lock_no_user_of_the_same_address_out(serve: Callable[..., _Serving]) -> None:
    """All users of an office, or behind a proxy, share an address; one of them may guess passwords all day."""
    with serve() as served, ThreadPoolExecutor(8) as pool:
        admin = served.client("anna")
        guesses = [pool.submit(served.client().sign_in, "rita", f"guess-{number}") for number in range(8)]
        wait_until(lambda: admin.get("health").json["failed_logins"] == len(guesses))
        answer = served.client().sign_in("nina")  # who has not logged in from here before
        are_waiting = not any(guess.done() for guess in guesses)
        assert (answer.status, are_waiting) == (200, True)
        assert {guess.result().error for guess in guesses} == {NotAuthenticated.__name__}


@pytest.mark.usefixtures("slow_refusals")
def test_sign_ins_above_the_limit_are_refused_and_sign_outs_are_not(serve: Callable[..., _Serving]) -> None:
    """Each that waits has a thread; the page of one that is refused says to try again."""
    with serve(max_waiting_logins=1) as served, ThreadPoolExecutor(1) as pool:
        admin, client = served.client("anna"), served.client("rita")
        guess = pool.submit(served.client().sign_in, "walt", "guess")
        wait_until(lambda: admin.get("health").json["failed_logins"] == 1)
        busy = served.client().sign_in("nina")
        assert (busy.status, busy.error, busy.headers["Retry-After"]) == (429, LoginsBusy.__name__, "1")
        assert client.sign_out().status == 200
        assert not guess.done()


def test_a_user_who_is_removed_or_gets_another_password_is_out_at_once(served: Served) -> None:
    """A session is a token in the file of users, which every call looks at."""
    for change in (
        lambda: served.users.add("temp", "other", replace=True),
        lambda: served.users.revoke_tokens("temp"),
        lambda: served.users.remove("temp"),
    ):
        served.users.add("temp", PASSWORD, replace=True)
        client = served.client("temp")
        assert client.get("streams").status == 200
        change()
        assert (client.get("streams").status, client.get("session").json) == (401, {"user": None, "has_users": True})


def test_a_session_expires(tmp_path: Path) -> None:
    """A cookie that somebody finds in a backup is worth nothing by then."""
    clock = ManualClock()
    users = Users.open(tmp_path / USERS_FILE, clock=clock)
    users.add("rita", PASSWORD)
    access = ConsoleAccess(Logins(users, clock=clock), Limits())
    session = access.sign_in("rita", PASSWORD, PEER)
    clock.advance(SESSION_S - 1)
    assert access.principal(session.token, PEER).name == "rita"
    clock.advance(1)
    with pytest.raises(NotAuthenticated, match="expired"):
        access.principal(session.token, PEER)
    access.sign_out(session.token, PEER)  # which is done already


@pytest.mark.parametrize("token", ["", "x", "x.y", "a" * 5000, "0123456789abcdef." + "A" * 43, "é"])
def test_a_cookie_that_is_no_session_is_nobody(served: Served, token: str) -> None:
    """A cookie is whatever a client sends."""
    client = Client(served.server.http_port)
    client.cookie = f"penstock_console_{client.port}={token}".encode().decode("latin-1")
    assert client.get("streams").error == "NotAuthenticated"


def test_a_user_has_a_share_of_the_calls(tmp_path: Path) -> None:
    """One user with many open pages leaves something to the others."""
    access = ConsoleAccess(None, Limits(max_user_share=0.5))
    with_users = ConsoleAccess(Logins(Users.open(tmp_path / USERS_FILE)), Limits(max_user_share=0.5))
    user, other = _Named("rita"), _Named("walt")
    taken = [with_users.take_call(user) for _ in range(16)]
    with pytest.raises(LimitReached):
        with_users.take_call(user)
    with_users.take_call(other)()
    taken[0]()
    with_users.take_call(user)()
    assert access.is_anonymous


class _Named:
    def __init__(self, name: str) -> None:
        self.name: Final = name

    def may(self, permission: str, stream: str) -> bool:
        del permission, stream
        return True


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[bad"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example"},
    ],
)
def test_a_change_from_another_site_is_refused(served: Served, headers: dict[str, str | None]) -> None:
    """A page that a user visits by mistake must not create, seal or grant with the user's session."""
    client = served.client("anna")
    for path, method in (("streams", "POST"), ("session", "POST"), ("session", "DELETE")):
        answer = client.post(path, CHANGE, method=method, **headers)
        assert (answer.status, answer.error) == (403, "NotPermitted")
        assert answer.json["message"].startswith("nobody may change anything from another site: open the console")
    assert client.get("session").json["user"] == "anna"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_a_change_that_a_form_could_send_is_refused(served: Served, content_type: str | None) -> None:
    """Forms send no JSON, and browsers ask before other sites may."""
    answer = served.client("anna").post("streams", CHANGE, Content_Type=content_type)
    assert (answer.status, answer.error) == (400, "BadArgument")


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("[::1]", 200), ("evil.example", 403), ("", 403)])
def test_a_server_without_users_answers_only_to_names_of_this_machine(tmp_path: Path, host: str, status: int) -> None:
    """A site whose name leads to 127.0.0.1 would have the same origin as the console, and there is no password."""
    with Server(Config(store=str(tmp_path), port=0, http_port=0, anonymous=True)) as server:
        client = Client(server.http_port)
        assert client.ask("GET", "/console/api/streams", Host=host and f"{host}:{server.http_port}").status == status
        assert client.get("session").json["manages_users"] is False
        assert client.post("grant", {"user": "a", "permission": "read", "pattern": "*"}).error == "BadArgument"
        assert client.post("session", {"user": "a", "password": "b"}).error == "BadArgument"
        assert client.get("users").json == {"users": []}


@pytest.mark.parametrize("path", ["/console/", "/console/static/main.js", "/console/api/streams", "/console/nothing"])
def test_every_answer_forbids_scripts_that_are_not_ours(served: Served, path: str) -> None:
    """What an event has in it cannot run, whatever mistake a page makes."""
    answer = served.client("anna").ask("GET", path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_server_ends_with_a_session_in_its_file(tmp_path: Path) -> None:
    """Sessions outlive the server: they are where the tokens are, and hold no password."""
    users = Users.open(tmp_path / USERS_FILE)
    users.add("rita", PASSWORD)
    access = ConsoleAccess(Logins(users), Limits())
    token = access.sign_in("rita", PASSWORD, PEER).token
    again = ConsoleAccess(Logins(Users.open(tmp_path / USERS_FILE)), Limits())
    assert again.principal(token, PEER).name == "rita"
    assert token.partition(".")[2] not in (tmp_path / USERS_FILE).read_text()


def test_an_error_of_the_disk_names_no_path(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store lies is for the administrator; the page says where to look."""
    from penstock.console import _calls  # noqa: PLC0415
    from penstock.errors import DiskFull  # noqa: PLC0415

    def fail(*_: object) -> None:
        raise DiskFull("/var/lib/penstock/plogs")

    monkeypatch.setitem(_calls.CALLS, "streams", fail)
    answer = served.client("rita").get("streams")
    assert (answer.status, answer.error) == (503, "StoreFailed")
    assert b"/var/lib" not in answer.body
