"""FutoIn event streams: Penstock beside the reference server on SQLite and on PostgreSQL, in one run, in turns.

Run it on an otherwise idle machine: ``python -m bench.futoin [FOLDER]``; the folder is made, filled and removed. All
servers get the same messages from the same client, with a password, over WebSockets. The reference server runs in
production mode with its largest groups, its shortest delays and ten connections to PostgreSQL.

Penstock and the databases sync before an event counts: SQLite with a rollback journal and ``synchronous=FULL``, its
default, and PostgreSQL with ``fsync`` and ``synchronous_commit``. The lines "without syncs" have SQLite's file in
memory, and PostgreSQL with ``fsync=off``.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import psycopg

import penstock
from bench._measure import Figure, compare, median_us, report
from bench._websocket import WebSocket
from bench.growth import GROWTH_MAX
from bench.server import count_of, said, started
from penstock.events._store_events import packed_event
from penstock.server import Users
from tests import postgres
from tests.events import javascript
from tests.server.apart import free_port

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

ROUNDS = 5
UNDER_WAY, ADD_S = (50, 500), 2.0  # calls of one connection, and for how long they are counted
HISTORY, LIVE = 20_000, 10_000  # events
RECEIVERS, PROCESSES, BURSTS = 500, 4, 10
LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
FLOOR = 5.0
STREAM = "futoin/events"
DATA = {"order": 12_345_678, "text": "0123456789" * 4}
TABLES = javascript.PACKAGES / "futoin-eventstream" / "sql" / "active"
OPTIONS = {"max_chunk_events": 400, "sleep_min": 1, "sleep_max": 1, "sleep_step": 1, "queue_max": 1_000_000}
_numbers = count()

SERVE = """
import json, sys, threading
from penstock.events import _event_log
from penstock.server import Config, run

reads, page = 0, _event_log.EventLog.page
def counted(*args, **options):
    global reads
    reads += 1
    return page(*args, **options)
_event_log.EventLog.page = counted

def ready(server):
    print(server.http_port, flush=True)
    print(server.port, flush=True)
    threading.Thread(target=lambda: [print(reads, flush=True) for _ in sys.stdin], daemon=True).start()

run(Config(port=0, http_port=0, max_connections=4000, **json.loads(sys.argv[1])), ready=ready)
"""

RECEIVE = """
import selectors, sys, time
from bench._websocket import WebSocket
from bench.futoin import answer_of, called
port, name, receivers, events = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
selector, left = selectors.DefaultSelector(), {}
for number in range(receivers):
    socket = WebSocket(int(port), "/futoin")
    socket.send(called("evt.push:1.1:registerConsumer", component=f"{name}_{number}"))
    socket.messages()
    socket.send(called("evt.push:1.1:readyToReceive", component=f"{name}_{number}"))
    assert b'"r":true' in socket.messages()[0]
    left[socket] = events
    selector.register(socket.socket, selectors.EVENT_READ, socket)
print("ready", flush=True)
while left:
    for key, _ in selector.select():
        for message in key.data.received():
            answer, size = answer_of(message)
            key.data.send(answer)
            left[key.data] -= size
        if left.get(key.data) == 0:
            del left[key.data]
print(time.time(), flush=True)
sys.stdin.readline()
"""


class Pushed(msgspec.Struct):
    """A group that a server pushes; its events are only looked at as bytes."""

    f: str
    rid: str


_decode = msgspec.json.Decoder(Pushed).decode
_LAST_ID = re.compile(rb'.*"id":"(\d+)"', re.DOTALL)


def called(function: str, rid: str = "C1", **parameters: object) -> bytes:
    """Return a call."""
    message = {"f": f"futoin.{function}", "p": parameters, "rid": rid, "sec": "anna:secret"}
    return msgspec.json.encode(message)


def answer_of(pushed: bytes) -> tuple[bytes, int]:
    """Return the answer to a group of events, and how many they are."""
    return b'{"r":true,"rid":"%s"}' % _decode(pushed).rid.encode(), pushed.count(b'"ts":')


class Contender(NamedTuple):
    """A server that is measured; ``write`` writes so many events at once, without FutoIn."""

    name: str
    port: int
    poll: str
    write: Callable[[int], object]


@contextmanager
def served(folder: Path, **settings: object) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Run Penstock in a process of its own; give the process, its HTTP port and its port."""
    given = msgspec.json.encode({"store": str(folder), **settings}).decode()
    with started(SERVE, given) as process:
        yield process, int(said(process)), int(said(process))


@contextmanager
def ours(folder: Path) -> Iterator[Contender]:
    """Serve with Penstock, with a user."""
    users = Users.open(folder / "users.json")
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    event = packed_event("TEST", DATA)
    with served(folder) as (_, http_port, port), WebSocket(http_port, "/futoin") as socket:
        socket.send(called("evt.poll:1.1:registerConsumer", component="first"))  # which creates the stream
        socket.messages()
        address = f"penstock://127.0.0.1:{port}"
        with penstock.connect(address, user="anna", password="secret") as store, store.writer(STREAM) as writer:

            def write(events: int) -> None:
                writer.write_batch([event] * events)
                writer.flush()

            yield Contender("Penstock", http_port, "evt.poll:1.1:pollEvents", write)


@contextmanager
def theirs(name: str, database: dict[str, str], numbers: str) -> Iterator[Contender]:
    """Serve with the reference server; ``numbers`` is a query for so many rows."""
    data, port = msgspec.json.encode(DATA).decode(), free_port()
    with javascript.reference() as node, node.server(port, database, OPTIONS, anna="secret") as server:

        def write(events: int) -> None:
            rows = f"SELECT 'TEST', '{data}', CURRENT_TIMESTAMP FROM {numbers % events}"
            server.query(f"INSERT INTO evt_queue (type, data, ts) {rows}")

        yield Contender(name, port, "evt.poll:1.0:pollEvents", write)


@contextmanager
def on_sqlite(folder: Path, name: str = "SQLite") -> Iterator[Contender]:
    """Serve from a file."""
    folder.mkdir()
    with sqlite3.connect(folder / "events.db") as database:
        database.executescript((TABLES / "sqlite" / "V18.1__Tables.sql").read_text())
    database.close()
    rows = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT %d) SELECT n FROM c)"
    with theirs(name, {"DB_EVT_TYPE": "sqlite", "DB_EVT_SOCKET": str(folder / "events.db")}, rows) as contender:
        yield contender


@contextmanager
def on_postgresql(name: str = "PostgreSQL", *, is_durable: bool = True) -> Iterator[Contender]:
    """Serve from a PostgreSQL server of its own."""
    with postgres.postgres_server(is_durable=is_durable) as server:
        with psycopg.connect(f"host={server.folder} user=postgres") as connection:
            connection.execute((TABLES / "postgresql" / "V18.1__Tables.sql").read_bytes())
        config = {
            "DB_EVT_TYPE": "postgresql",
            "DB_EVT_HOST": str(server.folder),
            "DB_EVT_PORT": "5432",
            "DB_EVT_USER": "postgres",
            "DB_EVT_DB": "postgres",
            "DB_EVT_MAXCONN": "10",
        }
        with theirs(name, config, "generate_series(1, %d)") as contender:
            yield contender


def add_rate(contender: Contender, under_way: int) -> float:
    """Return events/s of adding events one by one, with so many calls under way on one connection.

    The reference server answers with an error when a call has waited for too long; only ids count.
    """
    numbers = count()

    def calls(more: int) -> list[bytes]:
        return [called("evt.gen:1.1:addEvent", f"C{next(numbers)}", type="TEST", data=DATA) for _ in range(more)]

    with WebSocket(contender.port, "/futoin") as socket:
        socket.send(*calls(1))  # the first checks the password
        socket.messages()
        prepared = calls(100_000)
        socket.send(*calls(under_way))
        start, counted_s, done, left = time.perf_counter(), 0.0, 0, under_way
        while left:
            answers = socket.messages()
            left -= len(answers)
            if (elapsed := time.perf_counter() - start) < ADD_S or not done:
                more = [prepared.pop() for _ in answers]
                socket.send(*more)
                left += len(more)
                counted_s, done = elapsed, done + sum(b'"r":"' in answer for answer in answers)
        return done / counted_s


def poll_rate(contender: Contender) -> float:
    """Return events/s of polling the whole history as a new consumer, with each poll behind the last event."""
    component, events, last_id = f"poll_{next(_numbers)}", 0, None
    with WebSocket(contender.port, "/futoin") as socket:
        socket.send(called("evt.push:1.1:registerConsumer", component=component))
        socket.messages()
        start = time.perf_counter()
        while events < HISTORY:
            socket.send(called(contender.poll, component=component, last_id=last_id))
            [answer] = socket.messages()
            events += answer.count(b'"ts":')
            found = _LAST_ID.match(answer)
            assert found is not None, answer
            last_id = found[1].decode()
        return events / (time.perf_counter() - start)


def push_rates(contender: Contender, events: int) -> tuple[float, float]:
    """Return events/s of having a history of so many pushed to a new consumer, and those that are written then."""
    component = f"push_{next(_numbers)}"
    with WebSocket(contender.port, "/futoin") as socket:
        socket.send(called("evt.push:1.1:registerConsumer", component=component))
        socket.messages()

        def receive(left: int) -> None:
            while left > 0:
                for message in socket.messages():
                    if b'"f":' in message:
                        answer, size = answer_of(message)
                        socket.send(answer)
                        left -= size

        start = time.perf_counter()
        socket.send(called("evt.push:1.1:readyToReceive", component=component))
        receive(events)
        history = events / (time.perf_counter() - start)
        contender.write(LIVE)
        start = time.perf_counter()
        receive(LIVE)
        return history, LIVE / (time.perf_counter() - start)


def compared(what: str, contenders: list[Contender], rates: list[list[float]]) -> Iterator[Figure]:
    """Compare the first column of rates with the others."""
    for number, contender in enumerate(contenders[1:], 1):
        ratio = statistics.median(row[0] / row[number] for row in rates)
        mine, other = (statistics.median(row[column] for row in rates) for column in (0, number))
        floor = None if contender.name.endswith("without syncs") else FLOOR
        yield Figure(f"{what}, against {contender.name}", ratio, floor, {"/s": mine, "theirs/s": other})


def against_reference(folder: Path) -> Iterator[Figure]:
    """Compare Penstock with the reference server, on databases that sync and on such that do not."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        contenders = [
            stack.enter_context(contender)
            for contender in (
                ours(folder / "ours"),
                on_sqlite(folder / "sqlite"),
                on_postgresql(),
                on_sqlite(Path(memory) / "sqlite", "SQLite without syncs"),
                on_postgresql("PostgreSQL without syncs", is_durable=False),
            )
        ]
        for contender in contenders:
            contender.write(HISTORY)
            poll_rate(contender)  # the first one waits for modules to be imported
        polls = [[poll_rate(contender) for contender in contenders] for _ in range(ROUNDS)]
        yield from compared("poll of the history", contenders, polls)
        pushed = [[push_rates(each, HISTORY + before * LIVE) for each in contenders] for before in range(ROUNDS)]
        history, live = ([[rates[kind] for rates in row] for row in pushed] for kind in (0, 1))
        yield from compared("push of the history to one consumer", contenders, history)
        yield from compared("push of new events to one consumer", contenders, live)
        adds = [
            [max(add_rate(each, under_way) for under_way in UNDER_WAY) for each in contenders] for _ in range(ROUNDS)
        ]
        few, many = UNDER_WAY
        yield from compared(f"addEvent, the better of {few} and {many} under way", contenders, adds)


def many_receivers(folder: Path) -> Iterator[Figure]:
    """Show how fast many consumers of one stream get its events, and how often these are read."""
    events, event = BURSTS * 1_000, packed_event("TEST", DATA)
    with ExitStack() as stack:
        process, http_port, port = stack.enter_context(served(folder, anonymous=True, max_user_share=1.0))
        store = stack.enter_context(penstock.connect(f"penstock://127.0.0.1:{port}"))
        store.create_stream(STREAM)
        args = (str(RECEIVERS // PROCESSES), str(events))
        clients = [stack.enter_context(started(RECEIVE, str(http_port), f"c{n}", *args)) for n in range(PROCESSES)]
        for client in clients:
            assert said(client) == "ready\n", "the receivers did not start"
        before, start = count_of(process), time.time()
        with store.writer(STREAM) as writer:
            for _ in range(BURSTS):
                writer.write_batch([event] * 1_000)
                writer.flush()
        end = max(float(said(client)) for client in clients)
        reads = count_of(process) - before
    detail = {"/s": RECEIVERS * events / (end - start), "reads": reads, "pages": BURSTS}
    yield Figure(f"{RECEIVERS} push consumers of one stream: pages against reads", BURSTS / reads, 0.5, detail)


def long_histories(folder: Path) -> Iterator[Figure]:
    """Measure a poll of about a hundred events at the end of ever longer histories, and one that finds none."""
    event = packed_event("TEST", DATA)
    with ExitStack() as stack:
        _, http_port, port = stack.enter_context(served(folder, anonymous=True))
        store = stack.enter_context(penstock.connect(f"penstock://127.0.0.1:{port}"))
        polls: dict[str, list[Callable[[], float]]] = {"100 new events": [], "no new event": []}
        for length in LENGTHS:
            stream = f"bench/events-{length}"
            store.create_stream(stream)
            with store.writer(stream) as writer:
                for _ in range(length // 1_000):
                    writer.write_batch([event] * 1_000)
            tail = store.tail(stream).offsets[0]
            for last_id, kind in ((tail - 100 * tail // length, "100 new events"), (tail, "no new event")):
                polls[kind].append(partial(poll_us, http_port, stream, last_id))
        for kind, of_lengths in polls.items():
            for (few, few_poll), (many, many_poll) in pairwise(zip(LENGTHS, of_lengths, strict=True)):
                ratio, few_us, many_us, spread = compare(few_poll, many_poll, rounds=9)
                detail = {f"us behind {few:,}": few_us, f"behind {many:,}": many_us}
                yield Figure(f"poll, {kind}", ratio, 1 / GROWTH_MAX, detail, spread)


def poll_us(port: int, stream: str, last_id: int) -> float:
    """Return the median of how long a poll takes."""
    with WebSocket(port, f"/futoin/{stream}") as socket:

        def poll() -> None:
            socket.send(called("evt.poll:1.1:pollEvents", component="LIVE", last_id=str(last_id)))
            socket.messages()

        return median_us(poll, 50)


def main() -> None:
    """Measure and print."""
    reason = javascript.missing() or postgres.missing()
    os.environ["NODE_ENV"] = "production"
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-bench-", dir=Path.cwd()))
    folder.mkdir(exist_ok=True, parents=True)
    try:
        figures = [*many_receivers(folder / "receivers"), *long_histories(folder / "histories")]
        if reason is None:
            figures += against_reference(folder)
        else:
            print(f"without the reference server: {reason}")
        report("FutoIn event streams", figures)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
