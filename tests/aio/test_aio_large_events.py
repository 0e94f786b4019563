"""Events as files, and transactions, in an event loop."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import pytest

from penstock.aio import AsyncOpenTransaction, AsyncStreamWriter, _event_files
from penstock.errors import BadArgument, EventClosed, StreamSealed, TransactionEnded
from tests.aio.harness import KINDS, STREAM, Gate, all_events, cancelled, opened, run, settle

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
LARGE = bytes(range(256)) * (12 * MIB // 256)


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_written_and_read_as_a_file(kind: str, tmp_path: Path) -> None:
    """An upload goes through a service piece by piece, whatever its size."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store, store.writer(STREAM) as writer:
            async with writer.begin_write_event("cam-1", headers={"h": b"x"}) as output:
                for place in range(0, len(LARGE), 300_000):
                    assert await output.write(memoryview(LARGE)[place : place + 300_000]) > 0
                assert await all_events(store) == []
            file = await store.fetch_event_as_stream(output.pointer)
            assert (file.size, file.key, file.headers, file.stream) == (len(LARGE), b"cam-1", {"h": b"x"}, STREAM)
            assert b"".join([piece async for piece in file]) == LARGE
            assert file.seek(-3, io.SEEK_END) == len(LARGE) - 3
            assert (await file.read(2), file.tell(), await file.read(), await file.read()) == (
                LARGE[-3:-1],
                len(LARGE) - 1,
                LARGE[-1:],
                b"",
            )
            with pytest.raises(BadArgument):
                file.seek(-1)
            file.seek(1)
            assert await file.read(2**70) == LARGE[1:]
            for wrong in ("x", 1.5, None):
                with pytest.raises(TypeError):
                    file.seek(wrong)  # type: ignore[arg-type]
            assert file.tell() == len(LARGE)
            await file.close()
            with pytest.raises(EventClosed):
                await file.read()
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                found = await reader.read_next_event_as_stream()
                assert found is not None
                assert await found.read() == LARGE

    run(main())


def test_bytes_are_sent_as_they_come_and_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event may be larger than memory; small writes are sent together, without a thread for each."""
    monkeypatch.setattr(_event_files, "UNSENT_SIZE_MAX", 100_000)

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            output = await writer.begin_write_event()
            inner: Any = output._inner
            sizes: list[int] = []
            write = inner.write

            def counted(data: bytes) -> None:
                sizes.append(len(data))
                write(data)

            inner.write = counted
            for _ in range(300):
                await output.write(bytes(1000))
                assert output._unsent_size <= 100_000
            assert sum(sizes) >= 200_000
            await output.close()
            await output.close()
            assert [len(event) for event in await all_events(store)] == [300_000]
            with pytest.raises(EventClosed):
                await output.write(b"more")

    run(main())


@pytest.mark.parametrize("how", ["exception", "cancelled", "abort"])
def test_an_event_that_is_not_finished_leaves_nothing(how: str, tmp_path: Path) -> None:
    """A client that goes away in the middle of an upload must not leave half an event."""

    async def upload(writer: AsyncStreamWriter, has_begun: asyncio.Event) -> None:
        async with writer.begin_write_event() as output:
            await output.write(LARGE)
            await output.close()  # only ends the writing: the block decides
            has_begun.set()
            if how == "exception":
                raise ZeroDivisionError
            if how == "abort":
                await output.abort()
                return
            await asyncio.Event().wait()

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            has_begun = asyncio.Event()
            task = asyncio.ensure_future(upload(writer, has_begun))
            await has_begun.wait()
            if how == "cancelled":
                task.cancel()
            await asyncio.wait({task})
            await (await writer.write_event(b"next"))
            assert await all_events(store) == [b"next"]

    run(main())


def test_the_bytes_of_a_cancelled_write_are_part_of_the_event(tmp_path: Path) -> None:
    """Otherwise a program that goes on after a timeout could not know what the event contains."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            output = await writer.begin_write_event()
            inner: Any = output._inner
            gate = inner.write = Gate(inner.write)
            task = asyncio.ensure_future(output.write(b"a" * (2 * MIB)))
            await gate.reached()
            await cancelled(task)
            gate.may_go.set()
            await output.write(b"b" * (2 * MIB))
            await output.close()
            file = await store.fetch_event_as_stream(output.pointer)
            assert await file.read() == b"a" * (2 * MIB) + b"b" * (2 * MIB)

    run(main())


def test_bytes_that_a_cancelled_task_did_not_get_are_read_again(tmp_path: Path) -> None:
    """A download with a timeout for each piece must not skip one."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            pointer = await (await writer.write_event(LARGE))
            assert pointer is not None
            file = await store.fetch_event_as_stream(pointer)
            inner: Any = file._inner
            gate = inner.read = Gate(inner.read, holds_result=True)
            task = asyncio.ensure_future(file.read(MIB))
            await gate.reached()
            await cancelled(task)
            gate.may_go.set()
            del inner.read
            assert await file.read(1000) == LARGE[:1000]
            assert await file.read() == LARGE[1000:]

    run(main())


def test_an_event_whose_stream_was_sealed_is_an_error_at_its_end(tmp_path: Path) -> None:
    """The end of the block is the last chance to learn that nothing was written."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            writer = await store.writer(STREAM)
            with pytest.raises(StreamSealed):  # noqa: PT012 - raised by the end of the block
                async with writer.begin_write_event() as output:
                    await output.write(LARGE)
                    await store.seal_stream(STREAM)
            with pytest.raises(BadArgument):
                output.pointer  # noqa: B018 - there is none

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_is_all_or_nothing(kind: str, tmp_path: Path) -> None:
    """Events of a request become part of the stream together when its block ends well, and not at all otherwise."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store, store.transactional_writer(STREAM, "w1") as writer:
            async with writer.begin() as transaction:
                await transaction.write_event(b"1", "k")
                await transaction.write_batch([b"2", b"3"], keys="k")
                async with transaction.begin_write_event("k") as output:
                    await output.write(b"4")
                await transaction.ping()
                assert await all_events(store) == []
                assert await transaction.status() == "open"
            assert await all_events(store) == [b"1", b"2", b"3", b"4"]
            assert await store.fetch_event(output.pointer) == b"4"
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - passed on by the end of the block
                async with writer.begin() as transaction:
                    await transaction.write_event(b"5")
                    raise ZeroDivisionError
            assert await transaction.status() == "aborted"
            with pytest.raises(TransactionEnded):
                await transaction.write_event(b"6")
            assert len(await all_events(store)) == 4

    run(main())


def test_prepared_transactions_are_committed_together(tmp_path: Path) -> None:
    """A coordinator in an event loop commits what several processes have prepared, once for each number."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.transactional_writer(STREAM, "w1") as writer:
            ids = []
            for event in (b"1", b"2"):
                async with writer.begin(lease=60) as transaction:
                    await transaction.write_event(event, "k")
                    await transaction.prepare()
                    ids.append(transaction.id)
            assert (await writer.last_number(), writer.writer_id, writer.stream) == (None, "w1", STREAM)
            assert await writer.commit_all(ids, number=7)
            assert not await writer.commit_all(ids, number=7)
            assert await writer.last_number() == 7
            assert await (await writer.get(ids[0])).status() == "committed"
            assert await all_events(store) == [b"1", b"2"]
            found = await writer.begin()
            await (await writer.get(found.id)).abort()
            with pytest.raises(TransactionEnded):
                await found.commit()

    run(main())


def test_a_transaction_whose_task_is_cancelled_is_aborted_behind_its_last_write(tmp_path: Path) -> None:
    """The write still runs in its thread: the abort waits for it, and nothing of the transaction is left."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            begun: list[AsyncOpenTransaction] = []

            async def use() -> None:
                async with writer.begin() as transaction:
                    begun.append(transaction)
                    inner: Any = transaction._inner
                    inner.write_event = gate
                    await transaction.write_event(b"1")

            gate = Gate(lambda *_, **__: None)
            task = asyncio.ensure_future(use())
            await gate.reached()
            task.cancel()
            await settle()
            assert not task.done()
            gate.may_go.set()
            await asyncio.wait({task})
            assert task.cancelled()
            assert await begun[0].status() == "aborted"
            assert await all_events(store) == []

    run(main())


def test_a_transaction_that_a_cancelled_task_was_beginning_is_aborted(tmp_path: Path) -> None:
    """It would hold its place until its lease is over."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            inner: Any = writer._inner
            begun = inner.begin(30.0)
            gate = inner.begin = Gate(lambda _: begun, holds_result=True)
            task = asyncio.ensure_future(_awaited(writer.begin()))
            await gate.reached()
            await cancelled(task)
            gate.may_go.set()
            while begun.status != "aborted":
                await asyncio.sleep(0.001)

    run(main())


async def _awaited(opening: Any) -> Any:  # noqa: ANN401 - what is opened
    return await opening
