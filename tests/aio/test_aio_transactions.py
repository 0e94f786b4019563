"""Transactions in an event loop: small events are added together, in order, and none is left out of a commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.aio._threads import Threads
from penstock.errors import BadArgument, TransactionEnded
from tests.aio.harness import KINDS, STREAM, all_events, opened, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.aio import AsyncOpenTransaction

COUNT = 3000


@pytest.mark.parametrize("kind", KINDS)
def test_many_events_take_few_threads(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up of a thread for each event took longer than all else that was done for it."""
    calls: list[object] = []
    start = Threads.start

    def counted(self: Threads, step: Callable[[], Any], **options: Any) -> Any:  # noqa: ANN401 - as the method
        calls.append(step)
        return start(self, step, **options)

    async def story() -> None:
        async with opened(kind, tmp_path) as store, store.transactional_writer(STREAM) as writer:
            async with writer.begin() as transaction:
                monkeypatch.setattr(Threads, "start", counted)
                for number in range(COUNT):
                    await transaction.write_event(b"%d" % number, key="k")
                monkeypatch.undo()
            assert await all_events(store) == [b"%d" % number for number in range(COUNT)]

    run(story())
    assert len(calls) < COUNT / 10


@pytest.mark.parametrize("kind", KINDS)
def test_events_of_all_kinds_stay_in_order(kind: str, tmp_path: Path) -> None:
    """Small ones wait for a moment, and must not be overtaken by what does not."""

    async def story() -> None:
        async with opened(kind, tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            for name in (b"1", b"2"):
                await transaction.write_event(name, headers={"n": name})
            await transaction.write_batch([b"3", b"4"])
            await transaction.write_event(b"5", b"key")
            async with transaction.begin_write_event("k") as output:
                await output.write(b"6")
            await transaction.write_event(b"7")
            await transaction.write_event(b"8" * (300 << 10))
            await transaction.write_event(b"9")
            assert await all_events(store) == []
            await transaction.commit()
            assert [event[:1] for event in await all_events(store)] == [b"%d" % number for number in range(1, 10)]
            rows = [row async for batch in store.read(STREAM) for row in batch.to_pylist()]
            assert [dict(row["headers"]) for row in rows[:2]] == [{"n": b"1"}, {"n": b"2"}]
            assert (rows[0]["key"], rows[4]["key"]) == (None, b"key")

    run(story())


async def _written(transaction: AsyncOpenTransaction) -> None:
    for number in range(5):
        await transaction.write_event(b"%d" % number)
    assert transaction._pending, "some of them wait"


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_is_never_left_out_of_a_commit(kind: str, tmp_path: Path) -> None:
    """An event whose write has returned without an error is committed with the others, or nothing is."""

    async def story() -> None:
        async with opened(kind, tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            await _written(transaction)
            await (await writer.get(transaction.id)).abort()
            with pytest.raises(TransactionEnded):
                await transaction.commit()
            assert await transaction.status() == "aborted"
            with pytest.raises(TransactionEnded):
                await transaction.write_event(b"late")
            with pytest.raises(TransactionEnded):  # noqa: PT012 - raised by the end of the block
                async with writer.begin() as other:
                    await _written(other)
                    await (await writer.get(other.id)).abort()
            assert await all_events(store) == []

    run(story())


def test_events_that_cannot_be_added_abort_the_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes with a later call than the events; a commit after it must not pretend that all is well."""

    async def story() -> None:
        async with opened("memory", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            await _written(transaction)

            def refuse(*_: object, **__: object) -> None:
                raise BadArgument("not today")

            monkeypatch.setattr(transaction._inner, "write_batch", refuse)
            with pytest.raises(BadArgument, match="not today"):
                await transaction.ping()
            monkeypatch.undo()
            with pytest.raises(TransactionEnded):
                await transaction.commit()
            assert await all_events(store) == []

    run(story())


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_argument_is_refused_at_once_and_alone(kind: str, tmp_path: Path) -> None:
    """The call with the mistake raises it, and the events before it are not lost."""

    async def story() -> None:
        async with opened(kind, tmp_path) as store, store.transactional_writer(STREAM) as writer:
            async with writer.begin() as transaction:
                await _written(transaction)
                wrong: Any
                for wrong in ({"key": 7}, {"headers": {"a": "text"}}, {"headers": 5}):
                    with pytest.raises(BadArgument):
                        await transaction.write_event(b"x", **wrong)
                with pytest.raises(BadArgument):
                    await transaction.write_event("a text")
            assert await all_events(store) == [b"%d" % number for number in range(5)]

    run(story())


def test_a_task_that_is_cancelled_aborts_what_waits(tmp_path: Path) -> None:
    """A request that its client gave up leaves nothing behind."""

    async def story() -> None:
        async with opened("memory", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            begun = asyncio.Event()

            async def request() -> None:
                async with writer.begin() as transaction:
                    await _written(transaction)
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(request())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            transaction = await writer.begin()
            await _written(transaction)
            await transaction.abort()
            assert await transaction.status() == "aborted"
            assert await all_events(store) == []

    run(story())


def test_a_slow_writer_reaches_the_store_with_each_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write renews the lease, and learns whether the transaction has ended."""
    monkeypatch.setattr("penstock.aio._transaction._PENDING_S", -1.0)

    async def story() -> None:
        async with opened("memory", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            await transaction.write_event(b"1")
            await transaction.write_event(b"2")
            assert not transaction._pending
            await (await writer.get(transaction.id)).abort()
            with pytest.raises(TransactionEnded):
                await transaction.write_event(b"3")

    run(story())
