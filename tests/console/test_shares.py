"""What one user can take of the console: places for calls, and threads; others go on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.console import _calls
from penstock.console._turns import SharedThreads
from penstock.errors import LimitReached
from tests.console.conftest import STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.console.client import Answer
    from tests.console.conftest import Served

LONG_S: Final = 20
SHARE: Final = 16
SIZE: Final = 3 << 20


@pytest.fixture
def flood(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Answer]]:
    """Calls of rita that do not end before the test, as many as she may have; yields the refusals of four more."""
    is_over = threading.Event()
    ask = _calls.CALLS["health"]

    def ask_long(console: Any, user: Any, params: Any) -> Any:  # noqa: ANN401 - as all calls are
        assert is_over.wait(LONG_S)
        return ask(console, user, params)

    monkeypatch.setitem(_calls.CALLS, "health", ask_long)
    client = served.client("rita")
    with ThreadPoolExecutor(SHARE + 4) as pool:
        try:
            calls = [pool.submit(client.get, "health") for _ in range(SHARE + 4)]
            ended = as_completed(calls, LONG_S)
            yield [next(ended).result() for _ in range(4)]
        finally:
            is_over.set()
        assert sorted(call.result().status for call in calls) == [200] * SHARE + [429] * 4


def test_a_user_with_many_calls_is_refused_more_and_others_are_not(served: Served, flood: list[Answer]) -> None:
    """A call counts for its user before it waits for a thread, or one user's calls would fill the queue of all."""
    assert {answer.error for answer in flood} == {LimitReached.__name__}
    other = served.client("anna")
    assert [other.get("stream", name=STREAM).status for _ in range(SHARE)] == [200] * SHARE
    assert served.client().get("streams").status == 401  # an unauthenticated client is told so, not that others wait


def test_downloads_and_sign_outs_go_on_while_a_user_has_all_its_calls(served: Served, flood: list[Answer]) -> None:
    """A file that ends too early is lost work, and a user who cannot sign out leaves a session behind."""
    assert len(flood) == 4
    with served.store.writer(STREAM) as writer:
        pointer = writer.write_event(bytes(SIZE), key="large").result()
    other = served.client("anna")
    answer = other.get("event/data", pointer=pointer)
    assert (answer.status, len(answer.body)) == (200, SIZE)
    assert other.sign_out().status == 200
    leaving = served.client("rita")
    assert leaving.sign_out().status == 200
    assert leaving.get("session").json == {"user": None, "has_users": True}


def in_threads(test: Callable[[SharedThreads], Any], *, threads: int = 2, of_user_max: int = 1) -> None:
    shared = SharedThreads("test", threads=threads, of_user_max=of_user_max)
    try:
        asyncio.run(asyncio.wait_for(test(shared), LONG_S))
    finally:
        shared.close()


def test_users_take_turns() -> None:
    """The order of arrival would let the user with the most calls have the most threads."""
    order: list[str] = []

    async def test(shared: SharedThreads) -> None:
        users = ["rita"] * 4 + ["walt"] * 2 + ["anna"]
        await asyncio.gather(*(shared.run(user, partial(order.append, user)) for user in users))

    in_threads(test, threads=1)
    assert order == ["rita", "rita", "walt", "anna", "rita", "walt", "rita"]


def test_a_user_leaves_threads_to_the_others() -> None:
    """Calls that take long would keep every thread from a user who has a short one."""

    async def test(shared: SharedThreads) -> None:
        is_over = threading.Event()
        long = [asyncio.create_task(shared.run("rita", lambda: is_over.wait(LONG_S))) for _ in range(3)]
        await asyncio.sleep(0)
        assert await shared.run("walt", lambda: "short") == "short"
        assert not any(task.done() for task in long)
        is_over.set()
        assert await asyncio.gather(*long) == [True] * 3

    in_threads(test)


def test_a_call_that_is_cancelled_while_it_waits_takes_no_turn() -> None:
    """A server that stops cancels calls; a place that was never given back would be missing for good."""

    async def test(shared: SharedThreads) -> None:
        await shared._take("rita")
        waiting = [asyncio.create_task(shared._take("rita")) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        shared._give("rita")  # now it is the turn of the other one, which has not heard of it yet
        assert shared._running == {"rita": 1}
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        assert await shared.run("rita", lambda: 1) + await shared.run("rita", lambda: 2) == 3
        assert not shared._running
        assert not shared._waiting

    in_threads(test)


def test_an_error_in_a_thread_gives_the_thread_back() -> None:
    """A call that fails is raised to whom made it, and leaves nothing taken."""

    async def test(shared: SharedThreads) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await shared.run(None, lambda: 1 // 0)
        assert not shared._running

    in_threads(test, threads=1)
