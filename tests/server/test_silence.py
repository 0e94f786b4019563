"""A session whose client says nothing."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

import pytest

from penstock.server._limits import UNLIMITED, Limits
from penstock.server._permissions import ANONYMOUS
from penstock.server._quotas import Quotas
from penstock.server._service import FlightService
from penstock.server._session import Session
from penstock.testing import ManualClock
from penstock.wire import ARE_YOU_THERE, unpack

if TYPE_CHECKING:
    from penstock.stream import Engine

SECONDS_MAX: Final = 20.0


@pytest.fixture
def clock(store: Engine) -> ManualClock:
    assert isinstance(store.clock, ManualClock)
    return store.clock


@pytest.fixture
def session(store: Engine) -> Session:
    return Session(
        store, lambda: ANONYMOUS, quotas=Quotas(UNLIMITED), owner=None, is_cancelled=lambda: False, silent_s=100
    )


def told(session: Session) -> list[object]:
    """Return what the session has to tell: it is over when that was sent."""
    found: list[object] = []

    def send(data: bytes) -> None:
        found.extend(unpack(data))
        session.is_over = True

    session.notify("end", ["end"])
    session.run(send)
    session.is_over = False
    return [one for one in found if one != ["end"]]


def test_a_client_is_asked_once_before_it_is_given_up(session: Session, clock: ManualClock) -> None:
    """One that works is never asked, and one that is gone is not asked again and again."""
    clock.advance(50)
    assert not session.is_silent()
    assert told(session) == []
    clock.advance(1)
    assert not session.is_silent()
    assert not session.is_silent()
    assert told(session) == [[ARE_YOU_THERE]]
    clock.advance(49)
    assert not session.is_silent()
    assert told(session) == []
    clock.advance(1)
    assert session.is_silent()


def test_a_clock_that_is_set_neither_ends_nor_keeps_a_session(session: Session, clock: ManualClock) -> None:
    """Machines are set right by hours when they find out what time it is."""
    clock.set_forward(3600)
    assert not session.is_silent()
    assert told(session) == []
    clock.advance(-7200)
    clock.advance(101)
    assert session.is_silent()


def test_a_client_that_says_something_is_there(session: Session, clock: ManualClock) -> None:
    """For as long as before, and is asked again then."""
    clock.advance(99)
    assert not session.is_silent()
    session.note_seen()
    clock.advance(99)
    assert not session.is_silent()
    assert told(session) == [[ARE_YOU_THERE]]


def test_a_client_that_asks_and_does_not_listen_costs_no_more_than_that(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of segments that are not there, it could ask for ever: its session ends."""
    monkeypatch.setattr("penstock.server._session._UNSENT_MAX", 3)
    for number in range(3):
        session.watch(("plant/nothing", number))
    assert not session.is_silent()
    assert len(told(session)) == 3
    for number in range(4):
        session.watch(("plant/nothing", number))
    assert session.is_silent()


def test_a_notification_that_was_announced_comes_although_it_became_needless(store: Engine, session: Session) -> None:
    """A client waits for as many as an answer says; without the message it would wait for ever."""
    store.create_stream("plant/readings")
    key, sent = ("plant/readings", 0), list[bytes]()
    session.watch(key)
    assert session.notified == 1
    session.unwatch(key)

    def send(data: bytes) -> None:
        sent.append(data)
        session.is_over = True

    session.run(send)
    assert [unpack(data) for data in sent] == [[]]


class Hanging:
    """Something that is open, and cannot be let go while the disk hangs."""

    def __init__(self) -> None:
        self.begun, self.disk = threading.Event(), threading.Event()

    def abandon(self) -> None:
        """Wait for the disk."""
        self.begun.set()
        assert self.disk.wait(SECONDS_MAX)


def test_a_disk_that_hangs_does_not_keep_connections_from_being_looked_at(
    store: Engine, session: Session, clock: ManualClock
) -> None:
    """What a silent client had open may take long to let go; those who flood the port do not wait for it."""
    thing = Hanging()
    session.add(thing)
    service = FlightService(store, "grpc://127.0.0.1:0", limits=Limits(header_timeout_s=0.1))
    try:
        service._sessions[session.id] = session
        clock.advance(101)
        assert thing.begun.wait(SECONDS_MAX)
        with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS_MAX / 2) as client:
            while client.recv(1024):
                pass  # what gRPC says by itself
    finally:
        thing.disk.set()
        service.shutdown()
