"""Which connections of the Flight port have to go, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from penstock.server._limits import Limits
from penstock.server._lines import Account, Flow, Line, to_close
from penstock.server._watch import Ledger

LIMITS: Final = Limits(
    max_connections=3, max_message_bytes=1000, max_inflight_bytes=3000, idle_timeout_s=100, header_timeout_s=10
)


def closed(*lines: Line, now: float = 0, limits: Limits = LIMITS) -> list[str]:
    return [line.peer for line in dict(to_close(lines, limits, now))]


def stranger(peer: str, *, since: float = 0, kept: int = 0) -> Line:
    return Line(peer=peer, since=since, kept=kept)


def known(peer: str, *, since: float = 0, last: float = 0, kept: int = 0) -> Line:
    return Line(peer=peer, since=since, last=last, kept=kept)


def test_what_was_given_to_the_service_is_not_kept_by_grpc() -> None:
    """Frames and headers are forgiven, or a client that stays for days would be taken for a flood."""
    line, sent = stranger("a"), 0
    for _ in range(100):
        sent += 1_000_000 + 600
        line.note(Flow(received=sent, acked=0), 1, 1_000_000, 0)
    assert line.kept == 0


def test_what_came_and_was_not_given_is_kept() -> None:
    """Whatever was forgiven before: an allowance cannot be saved up."""
    line = stranger("a")
    line.note(Flow(received=500, acked=0), 100, 1_000_000, 0)
    line.note(Flow(received=500 + 70_000, acked=0), 0, 0, 0)
    assert line.kept == 70_000


def test_who_reads_much_is_forgiven_its_window_updates() -> None:
    """They are bytes that come, and nobody is given them."""
    line = known("a")
    line.note(Flow(received=10_000, acked=1_000_000), 0, 0, 5)
    assert (line.kept, line.last) == (0, 5)


def test_reading_answers_makes_nobody_known() -> None:
    """Refusals are answers, too."""
    line = stranger("a")
    line.note(Flow(received=100, acked=1_000_000), 0, 0, 5)
    assert line.last is None


@pytest.mark.parametrize(
    ("line", "now", "goes"),
    [
        (stranger("a", kept=1000), 10, False),
        (stranger("a", kept=1001), 10, True),
        (stranger("a"), 10.1, True),
        (known("a", kept=4000), 100, False),
        (known("a", kept=4001), 100, True),
        (known("a"), 100.1, True),
    ],
)
def test_limits_are_met_and_not_passed(line: Line, now: float, goes: bool) -> None:
    """A stranger has less of everything."""
    assert closed(line, now=now) == (["a"] if goes else [])


def test_when_there_are_too_many_the_oldest_strangers_go() -> None:
    """Who comes just now has not had the time to say anything."""
    lines = [known("old"), stranger("b", since=2), stranger("a", since=1), stranger("new", since=3), known("c")]
    assert closed(*lines) == ["a", "b"]
    assert closed(*lines[:3]) == []


def test_when_there_are_too_many_who_are_known_the_newest_go() -> None:
    """The others were there first, and have things open."""
    lines = [known("a"), stranger("s", since=9), known("d", since=4), known("b", since=2), known("c", since=3)]
    assert closed(*lines) == ["s", "d"]


def test_strangers_share_one_allowance() -> None:
    """However many connections a flood has; who sends most goes first."""
    lines = [stranger("a", kept=900), stranger("b", kept=1000), stranger("c", kept=950), stranger("d", kept=800)]
    limits = replace(LIMITS, max_connections=10)
    assert closed(*lines, limits=limits) == ["b"]
    assert closed(*lines[1:], limits=limits) == []


def test_an_account_counts_anew_when_it_was_asked() -> None:
    """Nothing is counted twice, and nothing is left out."""
    account = Account()
    account.add(5)
    account.add(7)
    assert [account.take(), account.take()] == [(2, 12), (0, 0)]


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
    ledger = Ledger()
    ledger.account(peer).add(3)
    assert ledger.known() == {address}
    assert ledger.take(address) == (1, 3)
    ledger.forget({address})
    assert ledger.known() == set()
    ledger.account(peer).add(4)
    assert ledger.take(address) == (1, 4)
