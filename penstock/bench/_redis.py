"""Redis streams: one server, redis-py with hiredis.

By default Redis keeps a stream in memory and saves snapshots now and then; with ``appendonly yes`` and
``appendfsync always`` it syncs before it answers.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.bench._process import HOST, ServerProcess, find_program, start_with_port
from penstock.bench._system import WAIT_S, NotOffered, SystemUnderTest, need_package, tail_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.bench._system import EventLoad

__all__ = ["RedisDefault", "RedisSynced"]

_FIELD: Final = b"e"
_PIPELINE_EVENTS: Final = 10_000  # more did not make it faster
_READ_EVENTS: Final = 1000
_BATCH: Final = "none; pipelines of calls"
_IN_FLIGHT: Final = "10,000 events, a pipeline; redis-py waits for its answers before the next"
_LARGEST: Final = 512 << 20
_FIRST: Final = "-"


class _Redis(SystemUnderTest):
    name = "redis"
    _options: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server: ServerProcess | None = None
        self._password = secrets.token_hex(16)
        self._port = 0

    @classmethod
    def check(cls) -> None:
        """Need the server and the client."""
        need_package("redis")
        _find_server()

    def start(self) -> None:
        """Start the server with a password that only this process knows."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        config = self.folder / "redis.conf"
        config.write_text(f"requirepass {self._password}\nbind {HOST}\ndir {data}\n{self._options}")
        config.chmod(0o600)

        def start(port: int) -> ServerProcess:
            return ServerProcess([_find_server(), config, "--port", str(port)], self.folder)

        self._server, self._port = start_with_port(
            start, lambda process, _: "Ready to accept connections" in process.said
        )

    def stop(self) -> None:
        """End the server, which saves what it has."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def close(self) -> None:
        """End the server at once: it would save what it has."""
        if self._server is not None:
            self._server.discard()
            self._server = None

    @contextmanager
    def _client(self) -> Iterator[Any]:
        import redis

        with redis.Redis(HOST, self._port, password=self._password, socket_timeout=WAIT_S) as client:
            client.ping()
            yield client

    def write_each(self, load: EventLoad) -> float:
        """Call ``xadd`` of a pipeline for each, which sends 10,000 at a time."""
        with self._client() as client:
            name = self.new_name()
            took = _write(client, name, load)
            client.delete(name)
            return took

    def write_batches(self, load: EventLoad) -> float:
        """Write as event by event: there is no call for many events."""
        return self.write_each(load)

    def fill(self, load: EventLoad) -> str:
        """Write in pipelines."""
        with self._client() as client:
            name = self.new_name()
            _write(client, name, load)
            return name

    def read_each(self, stream: str, load: EventLoad) -> float:
        """Call ``xread`` for 1,000 at a time, and go through them one by one."""
        with self._client() as client:
            found, last = 0, b"0"
            start = time.perf_counter()
            while found < load.count:
                events = _next(client, stream, last, load.count - found)
                for _, fields in events:
                    found += _FIELD in fields
                last = events[-1][0]
            return time.perf_counter() - start

    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Call ``xread`` for 1,000 at a time."""
        with self._client() as client:
            found, last = 0, b"0"
            start = time.perf_counter()
            while found < load.count:
                events = _next(client, stream, last, load.count - found)
                found, last = found + len(events), events[-1][0]
            return time.perf_counter() - start

    def write_singly(self, load: EventLoad) -> list[float]:
        """Call ``xadd`` and wait for its answer."""
        name, times = self.new_name(), []
        with self._client() as client:
            for _ in range(load.count):
                start = time.perf_counter()
                client.xadd(name, {_FIELD: load.event})
                times.append(time.perf_counter() - start)
            client.delete(name)
        return times

    def tail(self, load: EventLoad) -> list[float]:
        """Wait in ``xread`` on another connection."""
        name, last = self.new_name(), b"0"
        with self._client() as client, self._client() as other:

            def read() -> None:
                nonlocal last
                last = other.xread({name: last}, count=1, block=int(WAIT_S * 1000))[0][1][0][0]

            times = tail_times(lambda: client.xadd(name, {_FIELD: load.event}), read, load.count)
            client.delete(name)
        return times

    def large(self, size: int) -> tuple[float, float]:
        """Write it as one value."""
        if size > _LARGEST:
            raise NotOffered("a value has at most 512 MB")
        event, name = bytes(size), self.new_name()
        with self._client() as client:
            start = time.perf_counter()
            client.xadd(name, {_FIELD: event})
            written = time.perf_counter() - start
            start = time.perf_counter()
            ((_, fields),) = client.xrange(name, _FIRST, count=1)
            took = time.perf_counter() - start
            client.delete(name)
        if len(fields[_FIELD]) != size:
            raise RuntimeError(f"{len(fields[_FIELD]):,} of {size:,} bytes came back")
        return written, took

    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Write to each: a stream is there when it has an event."""
        with self._client() as client:
            names: list[str] = []
            start = time.perf_counter()
            while len(names) < number and time.perf_counter() - start < seconds_max:
                names.append(self.new_name())
                client.xadd(names[-1], {_FIELD: b"event"})
            took = time.perf_counter() - start
            client.delete(*names)
            return len(names), took


def _write(client: Any, name: str, load: EventLoad) -> float:  # noqa: ANN401 - redis-py's
    fields = {_FIELD: load.event}
    start = time.perf_counter()
    for first in range(0, load.count, _PIPELINE_EVENTS):
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(_PIPELINE_EVENTS, load.count - first)):
            pipeline.xadd(name, fields)
        pipeline.execute()
    return time.perf_counter() - start


def _next(client: Any, name: str, last: bytes, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:  # noqa: ANN401
    answer = client.xread({name: last}, count=min(_READ_EVENTS, count))
    if not answer:
        raise RuntimeError(f"{count:,} events are missing")
    events: list[tuple[bytes, dict[bytes, bytes]]] = answer[0][1]
    return events


class RedisSynced(_Redis):
    """It syncs before it answers."""

    key = "redis-synced"
    title = "Redis streams, synced"
    is_synced = True
    is_default = False
    _options = "appendonly yes\nappendfsync always\n"
    settings: ClassVar[Mapping[str, str]] = {
        "client": "redis-py with hiredis",
        "acknowledged": "when synced (appendfsync always)",
        "batch": _BATCH,
        "in flight": _IN_FLIGHT,
    }


class RedisDefault(_Redis):
    """It keeps a stream in memory."""

    key = "redis-default"
    title = "Redis streams, default"
    is_synced = False
    is_default = True
    _options = ""
    settings: ClassVar[Mapping[str, str]] = {
        "client": "redis-py with hiredis",
        "acknowledged": "when it is in memory (snapshots from time to time)",
        "batch": _BATCH,
        "in flight": _IN_FLIGHT,
    }


def _find_server() -> Path:
    return find_program("redis-server", how_to_get="on Debian, apt-get install redis-server")
