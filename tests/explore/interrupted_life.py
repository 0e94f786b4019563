"""A process that is interrupted again and again, at any instruction, and goes on with the same store.

``python interrupted_life.py FOLDER SEED INTERRUPTS KIND HOW``: a timer of the operating system interrupts whatever
runs; its handler presses Ctrl-C, or raises an error of its own, as one that was set for an alarm does. Every event is
unique. At the end the store is opened again: what was acknowledged is there once, in the order of its key; what was
interrupted is there once, or not; a reader that went on after each interrupt has got each event once.
"""

from __future__ import annotations

import faulthandler
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

import penstock

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
STREAM: Final = "plant/readings"
KEYS: Final = ("a", "b", "c", "d")
DELAYS_S: Final = (2e-5, 1e-4, 4e-4, 2e-3)
HANGS_S: Final = 60.0
OWNER: Final = "import penstock, sys; store = penstock.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"


class Life:
    """One store, what was done with it, and what became of it."""

    def __init__(self, folder: str, random: Random, error: type[BaseException]) -> None:
        self.folder, self.random, self.error = folder, random, error
        self.hits = 0
        self.is_armed = False
        signal.signal(signal.SIGALRM, self.interrupt)
        self.count = 0
        self.sent: dict[str, bool] = {}  # every event, and whether it was acknowledged
        self.unsure: set[str] = set()  # whose write was interrupted
        self.acks: list[tuple[list[str], Any]] = []
        self.called_back: Counter[str] = Counter()
        self.asked_back: set[str] = set()
        self.seen: list[tuple[int, str]] = []
        self.other_seen: list[str] = []
        self.number = 0
        self.over = threading.Event()
        self.store = penstock.connect(folder)
        self.store.create_stream(STREAM, segments=2, exist_ok=True)
        self.writer = self.store.writer(STREAM, "w")
        self.numbered = self.store.writer(STREAM, "n")
        self.transactional = self.store.transactional_writer(STREAM, "t")
        self.reader = self.store.create_reader_group("g", [STREAM]).reader("r")
        self.other = threading.Thread(target=self.write_besides)
        self.other.start()

    def write_besides(self) -> None:
        """Write and wait in another thread, which no interrupt reaches: it needs the same locks."""
        number = 0
        while not self.over.is_set():
            event = f"x:{number}"
            self.writer.write_event(event.encode(), key="x").result()
            self.other_seen.append(event)
            number += 1

    def interrupt(self, *_: object) -> None:
        """Press Ctrl-C, or raise; a timer that comes too late does nothing."""
        if self.is_armed and self.error is KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
        elif self.is_armed:
            raise self.error

    def interrupted(self, step: Callable[[], T]) -> tuple[bool, T | None]:
        """Take a step, and be interrupted in it, or not any more; return whether it came to its end, and with what."""
        result, is_done = None, False
        try:
            try:
                self.is_armed = True
                signal.setitimer(
                    signal.ITIMER_REAL, self.random.choice((2e-5, 1e-4, 4e-4, 2e-3)) * self.random.random()
                )
                result = step()
                is_done = True
            finally:
                self.is_armed = False
        except self.error:
            self.hits += 1
        return is_done, result

    def new_events(self, count: int = 1, key: str | None = None) -> tuple[str, list[str]]:
        key = key or self.random.choice(KEYS)
        names = [f"{key}:{self.count + index}" for index in range(count)]
        self.count += count
        return key, names

    def note(self, names: list[str], ack: Any) -> None:  # noqa: ANN401 - of an event or of many
        self.acks.append((names, ack))

    # What it does

    def write(self) -> None:
        key, [name] = self.new_events()
        self.unsure.add(name)
        is_done, ack = self.interrupted(lambda: self.writer.write_event(name.encode(), key=key))
        if is_done:
            self.note([name], ack)
            self.ask_back(name, ack)

    def ask_back(self, name: str, ack: Any) -> None:  # noqa: ANN401
        if self.random.random() < 0.2:
            self.asked_back.add(name)
            ack.add_done_callback(lambda _: self.called_back.update([name]))

    def wait(self) -> None:
        timeout = self.random.choice((None, None, 20.0))
        if self.acks:
            _, ack = self.random.choice(self.acks)
            self.interrupted(lambda: ack.result(timeout))

    def write_batch(self) -> None:
        key, names = self.new_events(self.random.choice((1, 10, 300)))
        self.unsure.update(names)
        size = self.random.choice((0, 0, 1000))
        events = [name.encode() + b" " * size for name in names]
        data = pa.array(events, pa.binary()) if self.random.random() < 0.5 else events
        is_done, ack = self.interrupted(lambda: self.writer.write_batch(data, [key] * len(events)))
        if is_done:
            self.note(names, ack)

    def write_numbered(self) -> None:
        """Write under a number, and after an interrupt ask whether it was taken."""
        self.number += 1
        name = f"n:{self.number}"
        self.unsure.add(name)

        def write() -> None:
            self.numbered.write_event(name.encode(), key="n", number=self.number).result()

        if not self.interrupted(write)[0]:
            self.numbered.flush()
            if (self.numbered.last_number or 0) < self.number:
                write()
        self.sent[name] = True

    def write_large(self) -> None:
        key, [name] = self.new_events()
        self.unsure.add(name)

        def write() -> None:
            with self.writer.begin_write_event(key) as output:
                output.write(name.encode() + b" " * (1 << 20))
                output.write(b" ")

        if self.interrupted(write)[0]:
            self.sent[name] = True

    def commit(self) -> None:
        key, names = self.new_events(3, "t")
        self.unsure.update(names)

        def write() -> None:
            with self.transactional.begin() as transaction:
                for name in names:
                    transaction.write_event(name.encode(), key=key)

        if self.interrupted(write)[0]:
            self.sent.update(dict.fromkeys(names, True))

    def flush(self) -> None:
        self.interrupted(self.writer.flush)

    def look(self) -> None:
        self.interrupted(lambda: (self.store.tail(STREAM), self.store.streams(), list(self.store.read(STREAM))[:1]))

    def scale(self) -> None:
        segments = self.store.stream(STREAM).segments
        one = self.random.choice(segments)
        middle = (one.low + one.high) / 2
        ranges = [(one.low, middle), (middle, one.high)]
        if len(segments) < 8 and self.random.random() < 0.1:
            self.interrupted(lambda: self.store.scale_stream(STREAM, [one.segment_id], ranges))

    def reopen(self) -> None:
        if self.random.random() < 0.1:
            self.interrupted(lambda: self.store.writer(STREAM, "other").close())

    def open_another(self) -> None:
        """Open a store and close it; who was interrupted can open it again, as its owner."""
        opened: list[Any] = []
        try:
            self.interrupted(lambda: opened.append(penstock.connect(f"{self.folder}-other", exclusive=True)))
        finally:
            for store in opened:
                store.close()

    def read(self) -> None:
        for _ in range(self.random.randrange(20)):
            _, read = self.reading(lambda: self.reader.read_next_event(0))
            if read is not None:
                assert read.pointer is not None, "no checkpoint was asked for"
                self.seen.append((read.pointer.segment_id, name_of(read.event)))

    def reading(self, step: Callable[[], T]) -> tuple[bool, T | None]:
        try:
            return self.interrupted(step)
        except penstock.errors.EventTooLarge as error:
            pointer = penstock.EventPointer.parse(str(error.pointer))
            self.seen.append((pointer.segment_id, name_of(self.store.fetch_event(pointer))))
            return True, None

    def read_batch(self) -> None:
        _, batch = self.reading(lambda: self.reader.read_batch(1 << 16, 0))
        if batch is not None:
            segments, events = batch["segment_id"].to_pylist(), batch["event"].to_pylist()
            self.seen += zip(segments, map(name_of, events), strict=True)

    def read_stream(self) -> None:
        _, event = self.interrupted(lambda: self.reader.read_next_event_as_stream(0))
        if event is not None:
            self.seen.append((event.pointer.segment_id, name_of(event.readall())))

    # How it ends

    def live(self, interrupts: int) -> None:
        acts = [self.write] * 12 + [self.wait] * 6 + [self.write_batch, self.write_numbered, self.flush] * 2
        acts += [self.write_large, self.commit, self.look, self.scale, self.reopen, self.open_another]
        acts += [self.read] * 3 + [self.read_batch, self.read_stream]
        while self.hits < interrupts:
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            self.random.choice(acts)()
            if len(self.acks) > 200:
                del self.acks[: self.settle(100)]

    def settle(self, count: int) -> int:
        for names, ack in self.acks[:count]:
            ack.result()
            self.sent.update(dict.fromkeys(names, True))
        return count

    def end(self) -> None:
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        self.over.set()
        self.other.join()
        self.settle(len(self.acks))
        self.sent.update(dict.fromkeys(self.other_seen, True))
        for writer in (self.writer, self.numbered, self.transactional):
            writer.close()
        self.read_rest()
        self.reader.close()
        missing = {name for name in self.asked_back if self.called_back[name] != 1}
        assert not missing, f"called back never or twice: {missing}"
        self.store.close()

    def read_rest(self) -> None:
        while True:
            event = self.reader.read_next_event_as_stream(0.2)
            if event is None:
                return
            self.seen.append((event.pointer.segment_id, name_of(event.readall())))

    def check(self) -> None:
        """Compare what is there with what was promised."""
        with penstock.connect(self.folder) as store:
            found = [
                (segment, name_of(store.fetch_event(pointer_of(segment, offset)) if event is None else event))
                for batch in store.read(STREAM)
                for event, segment, offset in zip(
                    *(batch[column].to_pylist() for column in ("event", "segment_id", "offset")), strict=True
                )
            ]
        names = [name for _, name in found]
        twice = [name for name, count in Counter(names).items() if count > 1]
        assert not twice, f"there twice: {twice[:5]}"
        lost = self.sent.keys() - set(names)
        assert not lost, f"acknowledged, and not there: {sorted(lost)[:5]} of {len(lost)}"
        strange = set(names) - self.sent.keys() - self.unsure
        assert not strange, f"never written: {sorted(strange)[:5]}"
        self.check_order(names)
        self.check_reader(by_segment(self.seen), by_segment(found))

    def check_reader(self, seen: dict[int, list[str]], found: dict[int, list[str]]) -> None:
        for segment, names in found.items():
            read = seen.get(segment, [])
            missed, again = Counter(names) - Counter(read), Counter(read) - Counter(names)
            assert not missed, f"not read of segment {segment}: {sorted(missed)[:5]} of {len(missed)}"
            assert not again, f"read twice of segment {segment}: {sorted(again)[:5]} of {len(again)}"
            assert read == names, f"read in another order in segment {segment}"

    def check_order(self, names: list[str]) -> None:
        """Those of one key that were acknowledged are in the order in which they were written."""
        for key in (*KEYS, "x", "n", "t"):
            numbers = [int(name.partition(":")[2]) for name in names if name.startswith(f"{key}:")]
            assert numbers == sorted(numbers), f"events of {key} are out of order"


def pointer_of(segment: int, offset: int) -> penstock.EventPointer:
    return penstock.EventPointer(STREAM, segment, offset)


def name_of(event: bytes) -> str:
    return event.decode().strip()


def by_segment(places: list[tuple[int, str]]) -> dict[int, list[str]]:
    found = defaultdict(list)
    for segment, name in places:
        found[segment].append(name)
    return dict(found)


def main(folder: str, seed: str, interrupts: str, kind: str, how: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a script in the background does not have
    owner = None
    if kind == "served":
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert owner.stdout is not None
        owner.stdout.readline()
    life = Life(folder, Random(int(seed)), KeyboardInterrupt if how == "ctrl-c" else TimeoutError)
    try:
        life.live(int(interrupts))
        life.end()
    finally:
        life.over.set()
    if owner is not None:
        owner.communicate()
    life.check()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(*sys.argv[1:])
