"""How many calls may be under way."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.server._limits import UNLIMITED, Calls, Limits
from penstock.server._service import FlightService
from penstock.wire import BUSY

if TYPE_CHECKING:
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
LIMITS: Final = Limits(max_connections=1)


def test_of_one_connection_so_many_are_under_way_and_no_more() -> None:
    """Each takes a thread; when one has ended, there is budget for another."""
    calls, most = Calls(LIMITS), int(LIMITS.calls_of_one_max)
    with ExitStack() as last:
        with ExitStack() as others:
            for number in range(most):
                (last if number == 0 else others).enter_context(calls.one("a"))
            with pytest.raises(flight.FlightUnavailableError, match="try again") as told, calls.one("a"):
                pass
            assert told.value.extra_info == BUSY
            last.enter_context(calls.one("b"))
        with calls.one("a"):
            pass


def test_of_all_connections_so_many_are_under_way_and_no_more() -> None:
    """However many connections there are; and nothing is left of those that have ended."""
    calls = Calls(LIMITS)
    for _ in range(2):
        with ExitStack() as all_of_them:
            for number in range(int(LIMITS.calls_max)):
                all_of_them.enter_context(calls.one(f"{number}"))
            with pytest.raises(flight.FlightUnavailableError), calls.one("another"):
                pass


def test_of_one_user_half_of_all_are_under_way_and_no_more() -> None:
    """Four connections would be enough to keep all others out, with a name and no permission."""
    calls, most = Calls(LIMITS), int(LIMITS.calls_max) // 2
    for _ in range(2):
        with ExitStack() as all_of_them:
            for number in range(most):
                all_of_them.enter_context(calls.one(f"{number}", "anna"))
            with pytest.raises(flight.FlightUnavailableError, match="'anna'") as told, calls.one("x", "anna"):
                pass
            assert told.value.extra_info == BUSY
            with calls.one("x", "berta"):
                pass


def test_processes_of_the_same_user_are_not_limited() -> None:
    """They could end the process in other ways."""
    calls = Calls(UNLIMITED)
    with ExitStack() as many:
        for _ in range(1000):
            many.enter_context(calls.one("a"))


def test_a_client_with_very_many_calls_is_told_to_try_again(store: Engine) -> None:
    """When gRPC can make no more threads, it ends the process."""
    begun = threading.Semaphore(0)

    class Service(FlightService):
        def _append(self, *given: Any) -> None:  # noqa: ANN401 - as it is
            begun.release()
            super()._append(*given)

    store.create_stream(STREAM)
    service = Service(store, "grpc://127.0.0.1:0", limits=replace(LIMITS, max_connections=10))
    descriptor, schema = flight.FlightDescriptor.for_path(STREAM), pa.schema([("event", pa.binary())])
    with flight.connect(f"grpc://127.0.0.1:{service.port}") as client:
        opened = [client.do_put(descriptor, schema)[0] for _ in range(int(LIMITS.calls_of_one_max))]
        for _ in opened:
            assert begun.acquire(timeout=60)
        one_more, answers = client.do_put(descriptor, schema)
        assert answers.read() is None
        with pytest.raises(flight.FlightUnavailableError, match="try again"):
            one_more.close()
        for writer in opened:
            writer.close()
        with client.do_put(descriptor, schema)[0] as again:
            again.write_batch(pa.record_batch({"event": [b"event"]}))
    service.shutdown()
    assert [len(batch) for batch in store.read(STREAM)] == [1]
