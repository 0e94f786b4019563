"""Writers of one connection share put streams: what that saves, and that none of them suffers for another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from penstock.client import _shared_appends
from penstock.client._store import RemoteStore
from penstock.embedded import open_store
from penstock.errors import WriterFenced
from penstock.server._writers import ClientWriter
from tests.log.harness import SECONDS_MAX
from tests.server.apart import eventually
from tests.stream.harness import STREAM
from tests.stream.large_harness import events_of
from tests.stream.wire_harness import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server._service import FlightService
    from penstock.stream import Engine, StreamWriter

WRITERS: Final = 12
STREAMS: Final = _shared_appends._STREAMS_MAX


class Crowd:
    """Writers of one client, each of which writes one event; the server answers nothing until it is let."""

    def __init__(
        self, inside: Engine, service: FlightService, store: RemoteStore, patch: pytest.MonkeyPatch, stack: ExitStack
    ) -> None:
        self.inside, self.service, self._shared = inside, service, store.connection.channel.appends
        self.writers = [store.writer(STREAM, f"w{number}") for number in range(WRITERS)]
        self.sent: list[int] = []  # how many writers each message had blocks of
        self.may_answer = threading.Event()
        self._pool = stack.enter_context(ThreadPoolExecutor(WRITERS))
        stack.callback(self.may_answer.set)
        acknowledge, answers = ClientWriter.acknowledge, _shared_appends._answers

        def wait(one: ClientWriter) -> tuple[list[int], bytes | None]:
            assert self.may_answer.wait(SECONDS_MAX)
            return acknowledge(one)

        def note(stream: object, parcels: list[object]) -> object:
            self.sent.append(len(parcels))
            return answers(stream, parcels)  # type: ignore[arg-type]

        patch.setattr(ClientWriter, "acknowledge", wait)
        patch.setattr(_shared_appends, "_answers", note)

    def write(self) -> list[BaseException | None]:
        """Let the first writers fill the streams, and all others wait; then let the server answer."""
        first = []
        for writer in self.writers[:STREAMS]:  # one after the other, or one message has the blocks of several
            first.append(self._pool.submit(_write, writer))
            eventually(lambda: self.sent == [1] * len(first))
        rest = [self._pool.submit(_write, writer) for writer in self.writers[STREAMS:]]
        eventually(lambda: len(self._shared._waiting) == WRITERS - STREAMS)
        self.before_answers()
        self.may_answer.set()
        return [one.exception(SECONDS_MAX) for one in (*first, *rest)]

    def before_answers(self) -> None:
        """Do nothing; a test may have something else done."""


def _write(writer: StreamWriter) -> None:
    writer.write_event(str(writer.writer_id).encode(), number=0).result()


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    with open_store("memory:") as store, ExitStack() as stack:
        store.create_stream(STREAM, 2)
        service, finder = stack.enter_context(served(store))
        client = stack.enter_context(RemoteStore(finder))
        yield Crowd(store, service, client, monkeypatch, stack)


def expected(writers: range) -> list[bytes]:
    return sorted(b"w%d" % number for number in writers)


def test_blocks_that_are_ready_together_go_in_one_message(crowd: Crowd) -> None:
    """A message and its answer cost both sides more than all that is in them."""
    assert crowd.write() == [None] * WRITERS
    together = crowd.sent[STREAMS:]  # the streams may become free at the same time, and share the others
    assert sum(together) == WRITERS - STREAMS
    assert len(together) <= STREAMS
    assert sorted(events_of(crowd.inside)) == expected(range(WRITERS))


def test_a_message_is_no_larger_than_its_limit(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that find no place go with the next one, and none is forgotten."""
    monkeypatch.setattr(_shared_appends, "SHARED_SIZE_MAX", 300)
    assert crowd.write() == [None] * WRITERS
    assert max(crowd.sent) == 3
    assert sorted(events_of(crowd.inside)) == expected(range(WRITERS))


def test_a_writer_that_is_refused_fails_alone(crowd: Crowd) -> None:
    """The others of its message know nothing of it."""

    def fence() -> None:
        fenced = crowd.inside.writers.get(STREAM, f"w{WRITERS - 1}")
        assert isinstance(fenced, ClientWriter)
        fenced._trouble = WriterFenced(STREAM, "w")

    crowd.before_answers = fence  # type: ignore[method-assign]
    *others, refused = crowd.write()
    assert others == [None] * (WRITERS - 1)
    assert isinstance(refused, WriterFenced)
    assert sorted(events_of(crowd.inside)) == expected(range(WRITERS - 1))


def test_writers_whose_connection_is_lost_send_again_what_did_not_arrive(crowd: Crowd) -> None:
    """Some blocks are durable and not acknowledged, others were never sent: each event is there once."""

    def lose() -> None:
        for session in list(crowd.service._sessions.values()):
            session.is_over = True
        for session in list(crowd.service._sessions.values()):
            threading.Thread(target=crowd.service._end, args=(session,)).start()

    crowd.before_answers = lose  # type: ignore[method-assign]
    assert crowd.write() == [None] * WRITERS
    assert sorted(events_of(crowd.inside)) == expected(range(WRITERS))


def test_small_and_large_blocks_of_a_writer_are_in_order(crowd: Crowd) -> None:
    """They go on two streams, one after the other."""
    crowd.may_answer.set()
    events = [bytes([number]) * (100_000 if number % 2 else 10) for number in range(10)]
    with crowd.writers[0] as writer:
        for event in events:
            writer.write_event(event, key="k").result()
    assert events_of(crowd.inside) == events
