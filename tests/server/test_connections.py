"""Which connections of the Flight port have to go, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from penstock.server._connections import ByteCounts, ConnectionWatch, ObservedConnection, Usage, UsageTable, to_close
from penstock.server._limits import Limits

LIMITS: Final = Limits(
    max_connections=3, max_message_bytes=1000, max_inflight_bytes=3000, idle_timeout_s=100, header_timeout_s=10
)


def closed(*connections: ObservedConnection, now: float = 0, limits: Limits = LIMITS) -> list[str]:
    return [connection.peer for connection in dict(to_close(connections, limits, now))]


def unauthenticated(peer: str, *, since: float = 0, kept: int = 0) -> ObservedConnection:
    return ObservedConnection(peer=peer, since=since, kept=kept)


def known(peer: str, *, since: float = 0, last: float = 0, kept: int = 0) -> ObservedConnection:
    return ObservedConnection(peer=peer, since=since, last=last, kept=kept)


def test_what_was_given_to_the_service_is_not_kept_by_grpc() -> None:
    """Frames and headers are forgiven, or a client that stays for days would be taken for a flood."""
    connection, sent = unauthenticated("a"), 0
    for _ in range(100):
        sent += 1_000_000 + 600
        connection.note(ByteCounts(received=sent, acked=0), 1, 1_000_000, 0)
    assert connection.kept == 0


def test_what_came_and_was_not_given_is_kept() -> None:
    """Whatever was forgiven before: an allowance cannot be saved up."""
    connection = unauthenticated("a")
    connection.note(ByteCounts(received=500, acked=0), 100, 1_000_000, 0)
    connection.note(ByteCounts(received=500 + 70_000, acked=0), 0, 0, 0)
    assert connection.kept == 70_000


def test_who_reads_much_is_forgiven_its_window_updates() -> None:
    """They are received bytes that belong to no call."""
    connection = known("a")
    connection.note(ByteCounts(received=10_000, acked=1_000_000), 0, 0, 5)
    assert (connection.kept, connection.last) == (0, 5)


def test_reading_answers_does_not_make_a_client_known() -> None:
    """Refusals are answers, too."""
    connection = unauthenticated("a")
    connection.note(ByteCounts(received=100, acked=1_000_000), 0, 0, 5)
    assert connection.last is None


@pytest.mark.parametrize(
    ("connection", "now", "goes"),
    [
        (unauthenticated("a", kept=1000), 10, False),
        (unauthenticated("a", kept=1001), 10, True),
        (unauthenticated("a"), 10.1, True),
        (known("a", kept=4000), 100, False),
        (known("a", kept=4001), 100, True),
        (known("a"), 100.1, True),
    ],
)
def test_limits_are_met_and_not_passed(connection: ObservedConnection, now: float, goes: bool) -> None:
    """An unauthenticated client has less of everything."""
    assert closed(connection, now=now) == (["a"] if goes else [])


def test_when_there_are_too_many_the_oldest_unauthenticated_go() -> None:
    """A client that has just connected has not had the time to send anything."""
    connections = [
        known("old"),
        unauthenticated("b", since=2),
        unauthenticated("a", since=1),
        unauthenticated("new", since=3),
        known("c"),
    ]
    assert closed(*connections) == ["a", "b"]
    assert closed(*connections[:3]) == []


def test_when_there_are_too_many_who_are_known_the_newest_go() -> None:
    """The others were there first, and have things open."""
    connections = [
        known("a"),
        unauthenticated("s", since=9),
        known("d", since=4),
        known("b", since=2),
        known("c", since=3),
    ]
    assert closed(*connections) == ["s", "d"]


def test_unauthenticated_clients_share_one_allowance() -> None:
    """However many connections a flood has; who sends most goes first."""
    connections = [
        unauthenticated("a", kept=900),
        unauthenticated("b", kept=1000),
        unauthenticated("c", kept=950),
        unauthenticated("d", kept=800),
    ]
    limits = replace(LIMITS, max_connections=10)
    assert closed(*connections, limits=limits) == ["b"]
    assert closed(*connections[1:], limits=limits) == []


def test_an_account_counts_anew_when_it_was_asked() -> None:
    """Nothing is counted twice, and nothing is left out."""
    usage = Usage()
    usage.add(5)
    usage.add(7)
    assert [usage.take(), usage.take()] == [(2, 12), (0, 0)]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
        ("ipv6:%5B::1%5D:5000", "::1:5000"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5000", "10.0.0.1:5000"),
    ],
)
def test_a_peer_is_found_by_its_address(peer: str, address: str) -> None:
    """The kernel writes it in another way than gRPC."""
    table = UsageTable()
    table.of(peer).add(3)
    assert table.known() == {address}
    assert table.take(address) == (1, 3)
    table.forget({address})
    assert table.known() == set()
    table.of(peer).add(4)
    assert table.take(address) == (1, 4)


def test_a_client_is_known_by_a_call_that_was_accepted() -> None:
    """The front has precedence for those, and knows them by their address; a login that is checked is not enough."""
    watch = ConnectionWatch(Limits())
    with watch.logging_in("ipv4:127.0.0.1:5000"):
        assert watch.user_of("127.0.0.1:5000") is None
    watch.note("unix-abstract:name/127.0.0.1:5000", 10, lambda: "anna")
    assert watch.user_of("127.0.0.1:5000") == "anna"
    assert watch.user_of("127.0.0.1:5001") is None
