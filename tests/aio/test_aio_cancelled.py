"""Transactions, batches and flushes whose tasks are cancelled at any ``await``: what is in the stream fits a model.

Each client is a task that writes batches and single events, flushes, and runs transactions, and is cancelled at the
n-th point at which it waits, a moment later or at once, some of them twice. The model is what its calls have returned:

- What a call has returned for is in the stream once, and in order; what it has acknowledged can be read at once.
- The call that was cancelled has written all that it was given, or nothing.
- A transaction is in the stream completely if it was committed, and ``status()`` says whether it was.
"""

from __future__ import annotations

import asyncio
import random
import threading
import types
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from tests.aio.harness import KINDS, SECONDS_MAX, STREAM, Gate, all_events, cancelled, opened, run, settle
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from pathlib import Path

    from penstock import aio

CLIENTS: Final = 8
OPERATIONS: Final = 12
AWAITS: Final = 60  # about as often as a client waits that is not cancelled
DELAYS_S: Final = (0.0, 0.0, 0.0005, 0.003)


@types.coroutine
def cancelled_at(work: Coroutine[Any, Any, None], awaits: list[tuple[int, float]]) -> Generator[Any, Any, None]:
    """Do some work; at each of the given awaits, which are counted from one, cancel its task after a delay."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    waited, error, later = 0, None, dict(awaits)
    while True:
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return
        waited, error = waited + 1, None
        if waited in later:
            loop.call_later(later[waited], task.cancel)
        try:
            yield awaited
        except BaseException as thrown:  # noqa: BLE001 - the work gets it
            error = thrown


class Part:
    """The events of one call or of one transaction, as the calls that wrote them have ended."""

    def __init__(self) -> None:
        self.sure: list[bytes] = []  # in the buffer or in the transaction, because the call has returned
        self.unsure: list[bytes] = []  # of the call that was cancelled: all of them were written, or none

    def may_be(self) -> list[list[bytes]]:
        """Return what the stream may have if the part was committed."""
        return [self.sure, self.sure + self.unsure]

    async def written(self, call: Coroutine[Any, Any, Any], events: list[bytes]) -> Any:  # noqa: ANN401 - as it returns
        """Make a call that writes events, and note them: what it did is unsure until it has returned."""
        self.unsure = events
        result = await call
        self.sure, self.unsure = self.sure + events, []
        return result


class Client:
    """One task, and what it knows about its events."""

    def __init__(self, name: int, dice: random.Random) -> None:
        self.name, self.dice = name, dice
        self.plain = Part()
        self.durable = 0  # how many of the plain events were acknowledged
        self.transactions: list[tuple[aio.AsyncOpenTransaction, Part]] = []
        self.pings: list[asyncio.Task[None]] = []  # calls that the calls of the client have to wait for
        self._acks: list[aio.AsyncAck[Any]] = []
        self._count = 0

    def new(self, count: int, kind: str) -> list[bytes]:
        """Return events that nobody else writes."""
        numbers = range(self._count, self._count + count)
        self._count += count
        return [f"{self.name} {kind} {number} ".encode() + bytes(self.dice.choice((0, 30_000))) for number in numbers]

    async def work(self, writer: aio.AsyncStreamWriter, transactions: aio.AsyncTransactionalWriter) -> None:
        for _ in range(OPERATIONS):
            match self.dice.choice(("event", "batch", "flush", "transaction", "block")):
                case "event":
                    [event] = events = self.new(1, "plain")
                    await self._acknowledged(
                        await self.plain.written(writer.write_event(event, str(self.name)), events)
                    )
                case "batch":
                    events = self.new(5, "plain")
                    await self._acknowledged(
                        await self.plain.written(writer.write_batch(events, str(self.name)), events)
                    )
                case "flush":
                    before = len(self.plain.sure)
                    await writer.flush()
                    self.durable = before
                    assert all(ack.done() for ack in self._acks)
                case "transaction":
                    await self._end(await self._begin(await transactions.begin()))
                case _:
                    async with transactions.begin() as transaction:
                        await self._begin(transaction)

    async def _acknowledged(self, ack: aio.AsyncAck[Any]) -> None:
        self._acks.append(ack)
        if self.dice.random() < 0.5:
            before = len(self.plain.sure)
            await ack
            self.durable = before

    async def _begin(self, transaction: aio.AsyncOpenTransaction) -> aio.AsyncOpenTransaction:
        part, kind = Part(), f"t{len(self.transactions)}"
        self.transactions.append((transaction, part))
        for _ in range(self.dice.randrange(4)):
            [event] = single = self.new(1, kind)
            await part.written(transaction.write_event(event, str(self.name)), single)
            if self.dice.random() < 0.5:
                self.pings.append(asyncio.create_task(transaction.ping()))
                await asyncio.sleep(0)
            batch = self.new(3, kind)
            await part.written(transaction.write_batch(batch, str(self.name)), batch)
        [event] = single = self.new(1, kind)
        await part.written(transaction.write_event(event, str(self.name)), single)
        return transaction

    async def _end(self, transaction: aio.AsyncOpenTransaction) -> None:
        self.pings.append(asyncio.create_task(transaction.ping()))
        await asyncio.sleep(0)
        match self.dice.choice(("commit", "commit", "prepare", "abort")):
            case "commit":
                await transaction.commit()
                assert await transaction.status() == "committed"
            case "prepare":
                await transaction.prepare()
                await transaction.commit()
            case _:
                await transaction.abort()

    async def settled(self) -> list[tuple[str, Part]]:
        """Return what became of the transactions; what was neither committed nor aborted is, by the dice."""
        await asyncio.gather(*self.pings, return_exceptions=True)  # the transaction may have ended
        outcomes: list[tuple[str, Part]] = []
        for transaction, part in self.transactions:
            if await transaction.status() in ("open", "prepared"):
                await (transaction.commit if self.dice.random() < 0.5 else transaction.abort)()
            outcomes.append((await transaction.status(), part))
        return outcomes


def check_plain(client: Client, events: list[bytes]) -> None:
    """Nothing is missing, twice, or at another place; of the cancelled call, everything or nothing is there."""
    found = [event for event in events if event.startswith(b"%d plain " % client.name)]
    assert found in client.plain.may_be()


def check_transactions(client: Client, outcomes: list[tuple[str, Part]], events: list[bytes]) -> None:
    """Whole transactions, and those that their status names."""
    for number, (status, part) in enumerate(outcomes):
        found = [event for event in events if event.startswith(b"%d t%d " % (client.name, number))]
        assert status in ("committed", "aborted")
        assert found in (part.may_be() if status == "committed" else [[]]), status


@pytest.mark.parametrize("seed", range(examples(60)))
def test_cancelled_transactions_batches_and_flushes_fit_the_model(seed: int, tmp_path: Path) -> None:
    """A service cancels a task whenever a client goes away: nothing may be lost, doubled, or half committed."""
    dice = random.Random(seed)
    kind = KINDS[seed % 3]

    async def main() -> None:
        clients = [Client(name, random.Random(f"{seed} {name}")) for name in range(CLIENTS)]
        async with opened(kind, tmp_path) as store:
            async with store.writer(STREAM) as writer, store.transactional_writer(STREAM) as transactions:
                tasks = []
                for client in clients:
                    awaits = [(dice.randrange(1, AWAITS), dice.choice(DELAYS_S)) for _ in range(dice.choice((1, 1, 2)))]
                    tasks.append(asyncio.ensure_future(cancelled_at(client.work(writer, transactions), awaits)))
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                assert [error for error in ended if not isinstance(error, asyncio.CancelledError | None)] == []
                visible = set(await all_events(store))
                for client in clients:
                    assert visible.issuperset(client.plain.sure[: client.durable]), "it was acknowledged"
                outcomes = [await client.settled() for client in clients]
            events = await all_events(store)
            for client, outcome in zip(clients, outcomes, strict=True):
                check_plain(client, events)
                check_transactions(client, outcome, events)
        if kind == "folder":
            with penstock.connect(tmp_path) as again:
                assert [event for batch in again.read(STREAM) for event in batch["event"].to_pylist()] == events

    run(main())


@pytest.mark.parametrize("step", ["commit", "prepare"])
def test_status_waits_for_a_step_whose_task_was_cancelled(step: str, tmp_path: Path) -> None:
    """The step runs on in its thread: a program that asks too early would believe that nothing was committed."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            await transaction.write_event(b"1")
            inner: Any = transaction._inner
            gate = Gate(getattr(inner, step))
            setattr(inner, step, gate)
            task = asyncio.ensure_future(getattr(transaction, step)())
            await gate.reached()
            await cancelled(task)
            status = asyncio.ensure_future(transaction.status())
            await settle()
            assert not status.done()
            gate.may_go.set()
            assert await status == ("committed" if step == "commit" else "prepared")
            await transaction.abort() if step == "prepare" else None
            assert await all_events(store) == ([b"1"] if step == "commit" else [])

    run(main())


def test_a_commit_that_is_cancelled_before_its_turn_commits_nothing(tmp_path: Path) -> None:
    """The events that were written stay in the transaction, which can be committed or aborted afterwards."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            await transaction.write_event(b"1")
            inner: Any = transaction._inner
            gate = inner.ping = Gate(inner.ping)
            ping = asyncio.ensure_future(transaction.ping())
            await gate.reached()
            commit = asyncio.ensure_future(transaction.commit())
            await settle()
            await cancelled(commit)
            gate.may_go.set()
            await ping
            assert (await transaction.status(), await all_events(store)) == ("open", [])
            await transaction.commit()
            assert await all_events(store) == [b"1"]

    run(main())


def test_an_abort_that_is_cancelled_before_its_turn_drops_nothing(tmp_path: Path) -> None:
    """The transaction is still open: a commit that follows must have all events whose writes have returned."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.transactional_writer(STREAM) as writer:
            transaction = await writer.begin()
            for event in (b"1", b"2"):
                await transaction.write_event(event)
            if not transaction._pending:
                pytest.fail("the second event is in no buffer")
            held: Any = transaction
            gate = held._add_pending = Gate(held._add_pending)
            ping = asyncio.ensure_future(transaction.ping())
            await gate.reached()
            abort = asyncio.ensure_future(transaction.abort())
            await settle()
            await cancelled(abort)
            gate.may_go.set()
            await ping
            await transaction.commit()
            assert await all_events(store) == [b"1", b"2"]

    run(main())


def test_a_cancelled_flush_or_batch_runs_to_its_end(tmp_path: Path) -> None:
    """The next task must find the writer as if nothing had happened, and the batch in its place."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            inner: Any = writer._inner
            for name, arguments in (("write_batch", ([b"1", b"2"],)), ("flush", ())):
                call, ended = getattr(inner, name), threading.Event()
                gate = Gate(lambda *given, call=call, ended=ended: (call(*given), ended.set()))
                setattr(inner, name, gate)
                task = asyncio.ensure_future(getattr(writer, name)(*arguments))
                await gate.reached()
                await cancelled(task)
                gate.may_go.set()
                assert await asyncio.to_thread(ended.wait, SECONDS_MAX)
                setattr(inner, name, call)
            await (await writer.write_event(b"3"))
            await writer.flush()
        async with opened("folder", tmp_path) as store:
            assert await all_events(store) == [b"1", b"2", b"3"]

    run(main())
