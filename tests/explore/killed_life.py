"""A process that does random things to a store until it is killed, and tells each before and after it is done.

It writes one line of JSON for each: ``["begun", ...]`` before, ``["done", ...]`` once the store has said so.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from penstock.embedded import open_store_at
from penstock.errors import DataTruncated
from penstock.log import PlogSizes

if TYPE_CHECKING:
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
GROUP: Final = "dashboard"
SIZES: Final = PlogSizes(first=512, largest=4096)
KEYS: Final = "abcdef"


def as_bytes(key: str, number: int) -> bytes:
    """Return the event of this number."""
    return f"{key}:{number}:".encode().ljust(60, b".")


def as_large(key: str, number: int) -> bytes:
    """Return the event of this number with many bytes."""
    return as_bytes(key, number) + f"{number};".encode() * (3_000 * (1 + number % 7))


def as_number(event: bytes) -> int:
    """Return the number of an event that is whole."""
    key, number, _ = event[:60].decode().split(":")
    assert event in (as_bytes(key, int(number)), as_large(key, int(number))), "it is another one than was written"
    return int(number)


def opened(plogs: str, cpo: str) -> Engine:
    """Open the store of a life."""
    return open_store_at(plogs, cpo, address="life", sizes=SIZES)


def read_some(store: Engine, count: int) -> list[int]:
    """Return the numbers of the next events of the reader group, up to so many; they are read when this returns."""
    numbers: list[int] = []
    with store.reader_group(GROUP).reader("r") as reader:
        while len(numbers) < count:
            with suppress(DataTruncated):  # what the group had not read
                read = reader.read_next_event(timeout=0)
                if read is None:
                    break
                numbers.append(as_number(read.event))
    return numbers


class Life:
    """What the process does; numbers of events go on from ``first``."""

    def __init__(self, store: Engine, dice: Random, first: int) -> None:
        self._store, self._dice, self._next = store, dice, first
        self._writer = store.writer(STREAM, "w")

    def run(self) -> None:
        """Go on until killed."""
        steps = (*[self._write] * 4, *[self._commit] * 5, self._prepare, self._scale, self._truncate, self._create)
        steps += (self._write_large, self._note_time, self._read)
        while True:
            self._dice.choice(steps)()

    def _events(self, count: int) -> list[tuple[str, int]]:
        first, self._next = self._next, self._next + count
        return [(self._dice.choice(KEYS), number) for number in range(first, first + count)]

    def _write(self) -> None:
        events = self._events(self._dice.randrange(1, 8))
        tell("begun", "write", [number for _, number in events])
        for key, number in events:
            self._writer.write_event(as_bytes(key, number), key=key)
        self._writer.flush()
        tell("done", "write", [number for _, number in events])

    def _write_large(self) -> None:
        [(key, number)] = self._events(1)
        tell("begun", "write", [number])
        with self._writer.begin_write_event(key) as output:
            output.write(as_large(key, number))
        tell("done", "write", [number])

    def _note_time(self) -> None:
        """Note the number of the next event as the time: all events with a lower number lie before its watermark."""
        [(_, time)] = self._events(1)
        tell("begun", "time", [time])
        self._writer.note_time(time)
        self._store.maintain()
        last = self._store.watermark(STREAM)
        tell("done", "time", [] if last is None else [last.lower])

    def _read(self) -> None:
        tell("begun", "read", [])
        tell("done", "read", read_some(self._store, self._dice.randrange(20)))

    def _commit(self) -> None:
        transaction = self._store.transactional_writer(STREAM).begin()
        events = self._events(self._dice.choice([1, 1, 1, 5, 60]))
        key = self._dice.choice(KEYS)
        for _, number in events:
            transaction.write_event(as_bytes(key, number), key=key if len(events) == 1 else str(number))
        tell("begun", "commit", [number for _, number in events], transaction.id)
        transaction.commit()
        tell("done", "commit", [number for _, number in events], transaction.id)

    def _prepare(self) -> None:
        writer, events = self._store.transactional_writer(STREAM, "p"), self._events(3)
        transaction = writer.begin()
        for key, number in events:
            transaction.write_event(as_bytes(key, number), key=key)
        tell("begun", "commit", [number for _, number in events], transaction.id)
        transaction.prepare()
        writer.commit_all([transaction.id], events[0][1])
        tell("done", "commit", [number for _, number in events], transaction.id)

    def _scale(self) -> None:
        current = [one.segment_id for one in self._store.stream(STREAM).segments]
        ranges = [(0.0, 1.0)] if len(current) > 1 else [(0.0, 0.5), (0.5, 1.0)]
        tell("begun", "scale", [])
        self._store.scale_stream(STREAM, current, ranges)
        tell("done", "scale", [])

    def _truncate(self) -> None:
        if self._dice.random() < 0.8:
            return
        tell("begun", "truncate", [])
        self._store.truncate_stream(STREAM, self._store.tail(STREAM))
        tell("done", "truncate", [])

    def _create(self) -> None:
        name = f"plant/s{self._next}"
        tell("begun", "create", [], name)
        self._store.create_stream(name, exist_ok=True)  # it was the last thing that was done before, too
        tell("done", "create", [], name)


def tell(*what: object) -> None:
    """Say something, so that it is heard whatever happens next."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with opened(*sys.argv[1:3]) as its_store:
        its_store.create_stream(STREAM, exist_ok=True)
        its_store.create_reader_group(GROUP, [STREAM], exist_ok=True)
        tell("begun", "life", [])
        Life(its_store, Random(int(sys.argv[3])), int(sys.argv[4])).run()
