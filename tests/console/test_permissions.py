"""Each role, each call: a user sees and changes what was granted, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.console.conftest import GRANTS, HIDDEN, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.console.client import Answer, Client
    from tests.console.conftest import Served

READERS: Final = {"anna", "rita", "cora", "adam"}
SHOWN: Final[dict[str, set[str]]] = {  # calls, and the users who may call them
    f"stream?name={STREAM}": READERS,
    f"segments?name={STREAM}": READERS,
    f"time?name={STREAM}&past=1": READERS,
    f"readers?name={STREAM}": READERS,
    f"events?name={STREAM}": READERS,
    f"event?pointer={STREAM}:0@0": READERS,
    f"event/data?pointer={STREAM}:0@0": READERS,
    f"stream?name={HIDDEN}": {"anna"},
    f"events?name={HIDDEN}": {"anna"},
    "stream?name=no/such": {"anna"},
    "streams": set(GRANTS),
    "health": set(GRANTS),
    "cluster": {"anna"},
    "users": {"anna"},
    "session": set(GRANTS),
}
CHANGED: Final[dict[str, tuple[dict[str, object], set[str]]]] = {
    "streams": ({"name": "plant/new", "segments": 0}, {"anna", "adam"}),
    "scale": ({"name": STREAM, "seal": [99], "ranges": []}, {"anna", "adam"}),
    "truncate": ({"name": STREAM, "confirm": "", "to": "head"}, {"anna", "adam"}),
    "seal": ({"name": STREAM, "confirm": "no"}, {"anna", "adam"}),
    "grant": ({"user": "nobody", "permission": "read", "pattern": "*"}, {"anna"}),
    "revoke": ({"user": "nobody", "permission": "read", "pattern": "*"}, {"anna"}),
}
"""Bodies that are refused for another reason where the user may do it, so that they change nothing."""


@pytest.fixture(scope="module")
def clients(served: Served) -> dict[str, Client]:
    return {user: served.client(user) for user in GRANTS}


def is_permitted(answer: Answer) -> bool:
    assert answer.status not in {401, 500}, answer.body
    return answer.error != "NotPermitted"


@pytest.mark.parametrize("call", SHOWN)
def test_only_those_who_may_read_are_shown_it(clients: dict[str, Client], call: str) -> None:
    """A page is only a client: what a user may see is decided for every call, by the grants of the user."""
    assert {user for user, client in clients.items() if is_permitted(client.get(call))} == SHOWN[call]


@pytest.mark.parametrize("call", CHANGED)
def test_only_those_who_may_administer_change_it(clients: dict[str, Client], call: str) -> None:
    """A button that a page does not show can still be pressed by a program."""
    body, permitted = CHANGED[call]
    assert {user for user, client in clients.items() if is_permitted(client.post(call, body))} == permitted


@pytest.mark.parametrize("call", [*(f"GET {call}" for call in SHOWN if call != "session"), *CHANGED])
def test_without_a_session_nothing_is_shown_or_changed(served: Served, call: str) -> None:
    """What is open to all by mistake stays unnoticed until somebody finds it."""
    client, (method, _, path) = served.client(), call.partition(" ")
    answer = client.get(path) if method == "GET" else client.post(call, CHANGED[call][0])
    assert (answer.status, answer.error) == (401, "NotAuthenticated")


def test_a_list_of_streams_has_only_those_that_the_user_may_read(clients: dict[str, Client]) -> None:
    """The name of a stream may be a secret, too, and so may how many there are."""

    def listed(user: str, **params: str) -> tuple[list[str], int]:
        answer = clients[user].get("streams", **params).json
        return [stream["name"] for stream in answer["streams"]], answer["total"]

    assert listed("rita") == ([STREAM], 1)
    assert listed("rita", filter="plans") == ([], 1)
    assert listed("anna", filter="PLANS") == ([HIDDEN], 2)
    assert listed("nina") == ([], 0)


def test_a_stream_says_what_its_user_may_do(clients: dict[str, Client]) -> None:
    """The page shows buttons only to those for whom they work."""
    may = {user: clients[user].get("stream", name=STREAM).json["may"] for user in ("rita", "cora", "adam")}
    assert may == {"rita": ["read"], "cora": ["read", "consume"], "adam": ["read", "consume", "write", "admin"]}


def test_groups_are_shown_to_those_who_may_know_of_them(served: Served, clients: dict[str, Client]) -> None:
    """A group that also reads a hidden stream would show its name to every reader of the other."""
    served.store.create_reader_group("open", [STREAM])
    served.store.create_reader_group("mixed", [STREAM, HIDDEN])

    def groups(user: str) -> set[str]:
        return {group["name"] for group in clients[user].get("readers", name=STREAM).json["groups"]}

    assert groups("rita") == {"open"}
    assert groups("anna") == {"open", "mixed"}


def test_figures_of_the_server_are_for_those_who_read_all(clients: dict[str, Client]) -> None:
    """They show what other users do."""
    assert "limits" in clients["anna"].get("health").json
    assert clients["rita"].get("health").json.keys() == {"version", "now_ms", "status", "reason", "streams", "detailed"}


def test_a_grant_and_its_revocation_count_with_the_next_call(served: Served, clients: dict[str, Client]) -> None:
    """An administrator who takes a permission back expects it to be gone, on open pages, too."""
    grant = {"user": "nina", "permission": "read", "pattern": STREAM}
    assert clients["anna"].post("grant", grant).status == 200
    assert clients["nina"].get("stream", name=STREAM).status == 200
    assert clients["anna"].post("revoke", grant).status == 200
    assert clients["nina"].get("stream", name=STREAM).error == "NotPermitted"
    assert clients["anna"].post("revoke", grant).status == 400
    assert "nina" in {user["name"] for user in clients["anna"].get("users").json["users"]}
    assert clients["anna"].post("grant", grant | {"user": "nobody"}).error == "NoSuchUser"
    assert clients["anna"].post("grant", grant | {"pattern": "../etc"}).error == "BadArgument"


def test_what_a_user_creates_belongs_to_the_user(served: Served, clients: dict[str, Client]) -> None:
    """Quotas count what a user has, whichever way it was made."""
    body = {"name": "plant/made", "segments": 3, "retention": "time", "limit": 3600}
    assert clients["adam"].post("streams", body).status == 200
    shown = clients["adam"].get("stream", name="plant/made").json
    assert (shown["owner"], shown["segments"], shown["retention"]) == ("adam", 3, "1 h")
    assert clients["adam"].post("streams", body).error == "StreamExists"
    assert clients["adam"].post("streams", body | {"name": "other/made"}).error == "NotPermitted"


def _names(answer: Answer) -> list[str]:
    return [stream["name"] for stream in answer.json["streams"]]


@pytest.mark.parametrize(
    ("call", "ends"),
    [
        ("scale", lambda info: len(info.segments) == 3),
        ("truncate", lambda info: str(info.head) == str(info.tail)),
        ("seal", lambda info: info.state == "sealed"),
    ],
)
def test_a_stream_is_scaled_truncated_and_sealed(
    served: Served, clients: dict[str, Client], call: str, ends: Callable[[object], bool]
) -> None:
    """These are the changes that the pages offer; what deletes or ends something wants the name once more."""
    name = f"plant/to-{call}"
    served.store.create_stream(name, segments=2)
    with served.store.writer(name) as writer:
        writer.write_batch([b"event"] * 10, [f"key-{number}" for number in range(10)]).result()
    first = served.store.stream(name).segments[0]
    middle = (first.low + first.high) / 2
    bodies: dict[str, dict[str, object]] = {
        "scale": {"seal": [first.segment_id], "ranges": [[first.low, middle], [middle, first.high]]},
        "truncate": {"to": "tail", "confirm": name},
        "seal": {"confirm": name},
    }
    if "confirm" in bodies[call]:
        assert clients["adam"].post(call, {"name": name, **bodies[call], "confirm": "yes"}).error == "BadArgument"
    assert not ends(served.store.stream(name))
    assert clients["adam"].post(call, {"name": name, **bodies[call]}).status == 200
    assert ends(served.store.stream(name))
