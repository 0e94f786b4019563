"""RabbitMQ streams: one server, rstream.

It confirms what the page cache has, and offers nothing else: there is no setting of it that syncs first.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from penstock.bench._process import HOST, ServerProcess, find_program, free_port
from penstock.bench._system import WAIT_S, NotOffered, SystemMissing, SystemUnderTest, need_package

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from penstock.bench._system import EventLoad

__all__ = ["RabbitMQStreams"]

_BATCH_EVENTS_MAX: Final = 1000
_BATCH_BYTES_MAX: Final = 256 << 10  # a batch is one frame, for which client and server agree on 1 MiB at most
_CREDIT_CHUNKS: Final = 10
_PUBLISHERS: Final = 100  # of a connection
_IDLE_S: Final = 0.001
_LOGIN: Final[dict[str, Any]] = {"username": "guest", "password": "guest"}  # RabbitMQ accepts it over loopback only
_INSTALL: Final = "on Debian, apt-get install rabbitmq-server (3.9 or newer)"
# The server needs epmd, and would leave one behind if it did not find ours.
_WITH_EPMD: Final = """
epmd & epmd=$!
"$1" & server=$!
trap 'kill $server' TERM
wait $server; wait $server
kill $epmd; wait $epmd
"""
_Result = TypeVar("_Result")


class RabbitMQStreams(SystemUnderTest):
    """A server of its own, with the plugin for streams."""

    name = "rabbitmq"
    key = "rabbitmq"
    title = "RabbitMQ streams"
    is_synced = False
    is_default = True
    written_events_min: ClassVar[int] = 50_000
    settings: ClassVar[Mapping[str, str]] = {
        "client": "rstream",
        "acknowledged": "when the page cache has it; it has no other setting",
        "batch": "up to 1,000 events or 256 KiB, plain bytes",
        "in flight": "all events of a round",
        "event by event": "rstream sends what it has collected every 0.5 s, so a round has 50,000 events or more",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server: ServerProcess | None = None
        self._port = 0

    @classmethod
    def check(cls) -> None:
        """Need the server, Erlang's epmd and the client."""
        need_package("rstream")
        _find_server()
        if shutil.which("epmd") is None:
            raise SystemMissing(f"the program epmd is missing: {_INSTALL}")

    def start(self) -> None:
        """Start the server; all that it listens on is loopback."""
        self._port = free_port()
        environment = _configure(self.folder, stream_port=self._port)
        command = ["sh", "-c", _WITH_EPMD, "sh", str(_find_server())]
        server = ServerProcess(command, self.folder, environment=environment)
        try:
            server.wait(lambda: "Starting broker... completed" in server.said)
        except BaseException:
            server.stop()
            raise
        self._server = server

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

    def _run(self, work: Callable[[Any], Coroutine[Any, Any, _Result]]) -> _Result:
        """Run work with a producer."""
        from rstream import Producer

        async def run() -> _Result:
            lost: list[Any] = []
            async with (
                asyncio.timeout(WAIT_S),
                Producer(HOST, self._port, **_LOGIN, on_close_handler=lost.append) as producer,
            ):
                result = await work(producer)
                if lost:  # the producer connects again by itself, and what it had sent is gone
                    raise RuntimeError(f"the connection was lost: {lost[0].reason}")
                return result

        return asyncio.run(run())

    @asynccontextmanager
    async def _stream(self, producer: Any) -> AsyncIterator[str]:  # noqa: ANN401 - rstream's
        name = self.new_name()
        await producer.create_stream(name)
        yield name
        await producer.delete_stream(name)

    def write_each(self, load: EventLoad) -> float:
        """Call ``send`` for each; only the last confirmation is asked for, since they come in order."""

        async def work(producer: Any) -> float:  # noqa: ANN401
            async with self._stream(producer) as name:
                confirmed = asyncio.Event()
                await producer.send_wait(name, load.event)  # declares the publisher
                start = time.perf_counter()
                for _ in range(load.count - 1):
                    await producer.send(name, load.event)
                await producer.send(name, load.event, on_publish_confirm=lambda _: confirmed.set())
                await confirmed.wait()
                return time.perf_counter() - start

        return self._run(work)

    def write_batches(self, load: EventLoad) -> float:
        """Call ``send_batch`` for many."""

        async def work(producer: Any) -> float:  # noqa: ANN401
            async with self._stream(producer) as name:
                return await _write_batches(producer, name, load)

        return self._run(work)

    def fill(self, load: EventLoad) -> str:
        """Write in batches."""

        async def work(producer: Any) -> str:  # noqa: ANN401
            name = self.new_name()
            await producer.create_stream(name)
            await _write_batches(producer, name, load)
            return name

        return self._run(work)

    def read_each(self, stream: str, load: EventLoad) -> float:
        """Subscribe: the client calls a function with each, as plain bytes."""
        return asyncio.run(self._read(stream, load.count))

    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Read as event by event: the client has no call for many events."""
        return self.read_each(stream, load)

    async def _read(self, stream: str, count: int) -> float:
        from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

        everything, left = asyncio.Event(), count

        def on_event(_event: object, _context: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                everything.set()

        async with asyncio.timeout(WAIT_S), Consumer(HOST, self._port, **_LOGIN) as consumer:
            first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
            start = time.perf_counter()
            await consumer.subscribe(
                stream, on_event, decoder=None, initial_credit=_CREDIT_CHUNKS, offset_specification=first
            )
            await everything.wait()
            return time.perf_counter() - start

    def restart(self, stream: str, load: EventLoad) -> float:
        """Ask for the stream until it is there, which is some time after the server says that it has started."""
        from rstream.exceptions import StreamNotAvailable

        self.stop()
        start = time.perf_counter()
        self.start()
        while True:
            try:
                asyncio.run(self._read(stream, 1))
                return time.perf_counter() - start
            except StreamNotAvailable:
                if time.perf_counter() - start > WAIT_S:
                    raise
                time.sleep(_IDLE_S)

    def write_singly(self, load: EventLoad) -> list[float]:
        """Await the confirmation of each."""

        async def work(producer: Any) -> list[float]:  # noqa: ANN401
            times = []
            async with self._stream(producer) as name:
                await producer.send_wait(name, load.event)
                for _ in range(load.count):
                    start = time.perf_counter()
                    await producer.send_wait(name, load.event)
                    times.append(time.perf_counter() - start)
            return times

        return self._run(work)

    def tail(self, load: EventLoad) -> list[float]:
        """Subscribe over another connection, in the same event loop."""

        async def work(producer: Any) -> list[float]:  # noqa: ANN401
            from rstream import Consumer

            arrived: asyncio.Queue[float] = asyncio.Queue()
            times = []
            async with self._stream(producer) as name, Consumer(HOST, self._port, **_LOGIN) as consumer:
                await consumer.subscribe(
                    name,
                    lambda *_: arrived.put_nowait(time.perf_counter()),
                    decoder=None,
                    initial_credit=_CREDIT_CHUNKS,
                )
                await producer.send_wait(name, load.event)
                await arrived.get()
                for _ in range(load.count):
                    await asyncio.sleep(_IDLE_S)
                    start = time.perf_counter()
                    await producer.send_wait(name, load.event)
                    times.append(await arrived.get() - start)
            return times

        return self._run(work)

    def large(self, size: int) -> tuple[float, float]:
        """State the limit."""
        del size
        raise NotOffered("an event has to fit into a frame, which has 1 MiB by default")

    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Create a stream and send to it; a connection has a limited number of publishers, so there are several."""
        names: list[str] = []
        took = 0.0

        async def create(producer: Any) -> None:  # noqa: ANN401
            nonlocal took
            start = time.perf_counter() - took
            for _ in range(min(_PUBLISHERS, number - len(names))):
                if took > seconds_max:
                    return
                names.append(self.new_name())
                await producer.create_stream(names[-1])
                await producer.send_wait(names[-1], b"event")
                took = time.perf_counter() - start

        async def remove(producer: Any) -> None:  # noqa: ANN401
            for name in names:
                await producer.delete_stream(name)

        while len(names) < number and took < seconds_max:
            self._run(create)
        self._run(remove)
        return len(names), took


async def _write_batches(producer: Any, name: str, load: EventLoad) -> float:  # noqa: ANN401 - rstream's
    """Send batches; the server confirms in order, so that the last event's confirmation is that of all."""
    size = max(1, min(_BATCH_EVENTS_MAX, _BATCH_BYTES_MAX // len(load.event)))
    await producer.send_wait(name, load.event)  # declares the publisher
    start = time.perf_counter()
    for left in range(load.count - 1, 0, -size):
        await producer.send_batch(name, [load.event] * min(size, left))
    await producer.send_wait(name, load.event, timeout=WAIT_S)
    return time.perf_counter() - start


def _configure(folder: Path, *, stream_port: int) -> dict[str, str]:
    """Write what the server reads; return its environment."""
    config = folder / "rabbitmq.conf"
    config.write_text(
        "listeners.tcp = none\n"
        f"stream.listeners.tcp.1 = {HOST}:{stream_port}\n"
        f"stream.advertised_host = {HOST}\n"
        f"stream.advertised_port = {stream_port}\n"
    )
    plugins = folder / "enabled_plugins"
    plugins.write_text("[rabbitmq_stream].\n")
    return {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),  # else that of the machine counts
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{{HOST.replace('.', ',')}}}",
    }


def _find_server() -> Path:
    """Find the script itself: Debian's command of the same name, a link, insists on users and folders of its own."""
    found = find_program("rabbitmq-server", how_to_get=_INSTALL, folders=["/usr/sbin"])
    return found.resolve().with_name("rabbitmq-server")
