"""What asyncio costs: events written and read one by one in an event loop, against the same without one.

Run it on an otherwise idle machine: ``python -m bench.aio [FOLDER]``; the folder is made, filled and removed.
Ratios are of rates on the clock; those of CPU time, which other processes change less, are among the figures.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench._measure import Figure, report
from penstock import aio

if TYPE_CHECKING:
    from penstock import Store

EVENTS, EVENT, ROUNDS = 200_000, os.urandom(100), 7
REQUESTS, WAITING = 5_000, 200
_numbers = count()


class Timed:
    """Rates on the clock and by CPU time of all threads, over rounds."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.cpu_rates: list[float] = []

    def note(self, done: int, start: tuple[float, float]) -> None:
        """Note how much was done since the start."""
        self.rates.append(done / (time.perf_counter() - start[0]))
        self.cpu_rates.append(done / (time.process_time() - start[1]))


def now() -> tuple[float, float]:
    """Return the time, and the CPU time of this process."""
    return time.perf_counter(), time.process_time()


def new_stream(store: Store) -> str:
    """Return the name of a new stream."""
    name = f"bench/stream-{next(_numbers)}"
    store.create_stream(name)
    return name


def write_blocking(store: Store, timed: Timed) -> str:
    """Write events, then wait for all of them."""
    name = new_stream(store)
    with store.writer(name) as writer:
        start = now()
        acks = [writer.write_event(EVENT, "key") for _ in range(EVENTS)]
        for ack in acks:
            ack.result()
        timed.note(EVENTS, start)
    return name


async def write_in_loop(store: aio.AsyncStore, timed: Timed) -> None:
    """Write events from one task, then await all of them."""
    async with store.writer(new_stream(store._inner)) as writer:
        start = now()
        acks = [await writer.write_event(EVENT, "key") for _ in range(EVENTS)]
        for ack in acks:
            await ack
        timed.note(EVENTS, start)


def read_blocking(store: Store, name: str, timed: Timed) -> None:
    """Read all events of a stream, one by one."""
    group = store.create_reader_group(f"group-{next(_numbers)}", [name], end=store.tail(name))
    with group.reader("r") as reader:
        start, done = now(), 0
        for _ in reader:
            done += 1
        timed.note(done, start)


async def read_in_loop(store: aio.AsyncStore, name: str, timed: Timed) -> None:
    """Read all events of a stream, one by one, with ``async for``."""
    group = await store.create_reader_group(f"group-{next(_numbers)}", [name], end=await store.tail(name))
    async with group.reader("r") as reader:
        start, done = now(), 0
        async for _ in reader:
            done += 1
        timed.note(done, start)


async def requests_in_loop(store: aio.AsyncStore, timed: Timed) -> None:
    """Write events from many tasks, each of which waits until its event is durable before it writes the next."""
    async with store.writer(new_stream(store._inner)) as writer:

        async def client() -> None:
            for _ in range(REQUESTS // WAITING):
                await (await writer.write_event(EVENT, "key"))

        start = now()
        await asyncio.gather(*(client() for _ in range(WAITING)))
        timed.note(REQUESTS, start)


async def requests_in_threads(store: aio.AsyncStore, timed: Timed) -> None:
    """Do the same with the blocking writer, and a thread for each event that a task waits for."""
    blocking = store._inner
    with blocking.writer(new_stream(blocking)) as writer:

        async def client() -> None:
            for _ in range(REQUESTS // WAITING):
                await asyncio.to_thread(lambda: writer.write_event(EVENT, "key").result())

        start = now()
        await asyncio.gather(*(client() for _ in range(WAITING)))
        timed.note(REQUESTS, start)


def figure(name: str, floor: float | None, ours: Timed, theirs: Timed) -> Figure:
    """Return the median of the rounds' ratios, on the clock, with the figures behind it."""
    ratio = median(mine / other for mine, other in zip(ours.rates, theirs.rates, strict=True))
    cpu = median(mine / other for mine, other in zip(ours.cpu_rates, theirs.cpu_rates, strict=True))
    detail = {"events/s": median(ours.rates), "against": median(theirs.rates), "ratio by CPU time": cpu}
    return Figure(name, ratio, floor, detail)


def measure(folder: Path) -> list[Figure]:
    """Measure both sides in turn."""
    writes, reads, requests = ((Timed(), Timed()) for _ in range(3))

    async def rounds() -> None:
        async with aio.connect(folder / "store") as store:
            for _ in range(ROUNDS):
                await write_in_loop(store, writes[0])
                name = write_blocking(store._inner, writes[1])
                await read_in_loop(store, name, reads[0])
                read_blocking(store._inner, name, reads[1])
                await requests_in_loop(store, requests[0])
                await requests_in_threads(store, requests[1])

    asyncio.run(rounds())
    return [
        figure("await write_event, 100 B, one task, then all acknowledgements, against blocking", 0.7, *writes),
        figure("async for, 100 B, against for", 0.7, *reads),
        figure(f"{WAITING} tasks that wait for each event, against a thread for each", None, *requests),
    ]


def main() -> None:
    """Measure everything and print it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-bench-", dir=Path.cwd()))
    folder.mkdir(exist_ok=True, parents=True)
    try:
        report("asyncio", measure(folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
