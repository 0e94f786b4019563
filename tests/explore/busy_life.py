"""A process whose threads write to one stream of a store in a bucket, all at once, until it is killed.

Two writers give their events numbers, and many are under way at the same time; one thread commits transactions, and one
writes large events. Each says what it begins, and what the store has acknowledged, as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, Final

from penstock.embedded import open_store_at
from penstock.log import PlogSizes

if TYPE_CHECKING:
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
NUMBERED: Final = ("n0", "n1")
SIZES: Final = PlogSizes(first=4096, largest=256 << 10)
UNDER_WAY_MAX: Final = 40
_lock: Final = threading.Lock()


def event_of(worker: str, number: int, size: int) -> bytes:
    """Return an event that can be told from every other one, and from a part of it."""
    head = f"{worker}:{number}:{size}:".encode()
    digest = blake2b(head).hexdigest().encode()
    return (head + digest * (1 + size // len(digest)))[: max(size, len(head) + len(digest))]


def parse(event: bytes) -> tuple[str, int]:
    """Return whose event it is, and its number."""
    worker, number, size, _ = event.split(b":", 3)
    assert event == event_of(worker.decode(), int(number), int(size)), f"{worker!r} {number!r} was changed"
    return worker.decode(), int(number)


def opened(plogs: str, cpo: str) -> Engine:
    """Open the store of a life."""
    return open_store_at(plogs, cpo, address="life", sizes=SIZES)


def tell(kind: str, worker: str, *numbers: int) -> None:
    """Say something, so that it is heard whatever happens next."""
    with _lock:
        sys.stdout.write(json.dumps([kind, worker, *numbers]) + "\n")
        sys.stdout.flush()


def write_numbered(store: Engine, worker: str, dice: Random, number: int) -> None:
    """Write events with numbers; those from ``number`` on may be there already."""
    writer = store.writer(STREAM, worker)
    under_way: deque[tuple[int, Any]] = deque()
    while True:
        tell("begun", worker, number)
        size = 100 + number * 37 % 3000  # the same when it is written again
        under_way.append((number, writer.write_event(event_of(worker, number, size), key=worker, number=number)))
        number += 1
        while len(under_way) > dice.randrange(UNDER_WAY_MAX):
            done, ack = under_way.popleft()
            ack.result()
            tell("done", worker, done)


def commit(store: Engine, worker: str, dice: Random, number: int) -> None:
    """Commit transactions, some with a large event."""
    writer = store.transactional_writer(STREAM)
    while True:
        numbers = range(number, number + dice.choice([1, 3, 40]))
        number = numbers.stop
        transaction = writer.begin()
        for event in numbers:
            transaction.write_event(event_of(worker, event, 150_000 if event % 9 == 0 else 60), key=worker)
        tell("begun", worker, *numbers)
        transaction.commit()
        tell("done", worker, *numbers)


def write_large(store: Engine, worker: str, dice: Random, number: int) -> None:
    """Write large events in pieces."""
    writer = store.writer(STREAM)
    while True:
        event = event_of(worker, number, dice.randrange(50_000, 600_000))
        tell("begun", worker, number)
        with writer.begin_write_event(worker) as output:
            for start in range(0, len(event), 100_000):
                output.write(event[start : start + 100_000])
        tell("done", worker, number)
        number += 1


WORKERS: Final = {**dict.fromkeys(NUMBERED, write_numbered), "t0": commit, "t1": commit, "l0": write_large}


def _run(plogs: str, cpo: str, seed: str, first: str) -> None:
    with opened(plogs, cpo) as store:
        store.create_stream(STREAM, exist_ok=True)
        firsts: dict[str, int] = json.loads(first)
        dice = Random(int(seed))
        tell("begun", "life")
        threads = [
            threading.Thread(target=work, args=(store, worker, Random(dice.random()), firsts[worker]), daemon=True)
            for worker, work in WORKERS.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    _run(*sys.argv[1:])
