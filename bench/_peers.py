"""The peers that streams are compared with, Kafka and RabbitMQ: as their documentation uses them, and tuned.

"As documented" writes and acknowledges event by event, as ``write_event`` does; "tuned" is as fast as it can be made
to go, with acknowledgements of many events at once.

Neither promises what Penstock does when it acknowledges an event, so a ratio says who is quicker, not who is better:

- Kafka is librdkafka's producer and the mock broker inside it: it acknowledges and forgets, no disk takes part.
- RabbitMQ is a server of its own that this module starts: it confirms what the page cache has, without an fsync.

``python -m bench._peers`` installs both. A peer that is not there is `PeerMissing`, never a figure.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench._measure import rate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from confluent_kafka import KafkaError, Message
    from rstream import AMQPMessage, ConfirmationStatus, MessageContext, OnClosedErrorInfo, Producer

__all__ = ["PeerMissing", "RabbitMQ", "kafka_documented_rate", "kafka_write_rate", "rabbitmq"]

_LOOPBACK: Final = "127.0.0.1"
_TOPIC: Final = "bench"
_MEASURE_SECONDS_MAX: Final = 120
_START_SECONDS_MAX: Final = 60
_STOP_SECONDS_MAX: Final = 30


class PeerMissing(Exception):
    """There is nothing to compare with on this machine; the message says why and what to do."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer} is missing: {reason}")
        self.peer, self.reason = peer, reason


def _need(package: str, *, peer: str) -> None:
    if find_spec(package) is None:
        advice = "run python -m bench._peers, or pip install 'penstock-stream[bench]'"
        raise PeerMissing(peer, f"no package {package}: {advice}")


# The batches are librdkafka's own: bigger ones, and a longer linger, changed nothing that could be measured.
_KAFKA: Final[dict[str, str | int | float | bool]] = {
    "test.mock.num.brokers": 1,
    "log_level": 4,  # 5 tells every time that the broker is a mock
    "linger.ms": 5,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
}
_KAFKA_POLL_EVENTS: Final = 1000  # polling after each event costs a quarter of the rate


def kafka_documented_rate(event: bytes, count: int) -> float:
    """Return events/s with a delivery report for each event and a poll before each, as in Kafka's own example."""
    _need("confluent_kafka", peer="Kafka")
    from confluent_kafka import Producer

    reports: list[KafkaError | None] = []
    producer = Producer(_KAFKA)

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        reports.append(error)

    def write(number: int) -> int:
        reports.clear()
        for _ in range(number):
            producer.poll(0)
            while True:
                try:
                    producer.produce(_TOPIC, event, partition=0, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(_MEASURE_SECONDS_MAX)
        if reports != [None] * number:
            raise RuntimeError(f"Kafka: {len(reports)} of {number} events acknowledged")
        return number

    write(1)  # connects, and makes the topic
    return rate(lambda: write(count))


def kafka_write_rate(event: bytes, count: int) -> float:
    """Return events/s from the first ``produce`` until the broker has acknowledged the last event."""
    _need("confluent_kafka", peer="Kafka")
    from confluent_kafka import Producer

    failures: list[KafkaError | None] = []
    on_error = {"delivery.report.only.error": True, "on_delivery": lambda error, _message: failures.append(error)}
    producer = Producer({**_KAFKA, **on_error})

    def write(number: int) -> int:
        sent = 0
        while sent < number:
            try:
                for _ in range(min(_KAFKA_POLL_EVENTS, number - sent)):
                    producer.produce(_TOPIC, event, partition=0)
                    sent += 1
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)
        left = producer.flush(_MEASURE_SECONDS_MAX)
        if left or failures:
            raise RuntimeError(f"Kafka: {left} events not acknowledged, {len(failures)} failed: {failures[:1]}")
        return sent

    write(1)  # connects, and makes the topic
    return rate(lambda: write(count))


# A batch is one frame, for which client and server agree on 1 MiB at most.
_BATCH_EVENTS_MAX: Final = 1000
_BATCH_BYTES_MAX: Final = 256 << 10
_CREDIT_CHUNKS: Final = 10


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    """A running server. Each measurement has a stream to itself.

    As documented, events are sent one by one, and read as AMQP messages; tuned, they are plain bytes, sent in batches.
    """

    port: int

    def write_rate(self, event: bytes, count: int, *, tuned: bool) -> float:
        """Return events/s from the first one sent until the server has confirmed the last event."""

        async def measure() -> float:
            async with self._stream() as producer:
                return await (_write if tuned else _write_singly)(producer, event, count)

        return asyncio.run(measure())

    def read_rate(self, event: bytes, count: int, *, tuned: bool) -> float:
        """Return events/s from subscribing until the last event is there; they were written just before."""

        async def measure() -> float:
            async with self._stream() as producer:
                await _write(producer, event, count, amqp=not tuned)
                return await self._read(count, amqp=not tuned)

        return asyncio.run(measure())

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[Producer]:
        from rstream import Producer

        lost: list[OnClosedErrorInfo] = []
        async with (
            asyncio.timeout(_MEASURE_SECONDS_MAX),
            Producer(
                _LOOPBACK, self.port, username="guest", password="guest", on_close_handler=lost.append
            ) as producer,
        ):
            await producer.create_stream(_TOPIC)
            try:
                yield producer
                if lost:  # the producer connects again by itself, and what it had sent is gone
                    raise RuntimeError(f"RabbitMQ: connection lost while measuring: {lost[0].reason}")
            finally:
                await producer.delete_stream(_TOPIC)

    async def _read(self, count: int, *, amqp: bool) -> float:
        from rstream import Consumer, amqp_decoder

        everything, left = asyncio.Event(), count

        def on_event(_event: AMQPMessage, _context: MessageContext) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                everything.set()

        async with Consumer(_LOOPBACK, self.port, username="guest", password="guest") as consumer:
            start = time.perf_counter()
            decoder = amqp_decoder if amqp else None
            await consumer.subscribe(_TOPIC, on_event, decoder=decoder, initial_credit=_CREDIT_CHUNKS)
            await everything.wait()
            return count / (time.perf_counter() - start)


async def _write_singly(producer: Producer, event: bytes, count: int) -> float:
    """Write event by event; only the last one's confirmation is asked for, that of each would cost a third."""
    everything = asyncio.Event()

    def on_confirm(_status: ConfirmationStatus) -> None:
        everything.set()

    await producer.send_wait(_TOPIC, event)
    start = time.perf_counter()
    for _ in range(count - 1):
        await producer.send(_TOPIC, event)
    await producer.send(_TOPIC, event, on_publish_confirm=on_confirm)
    await everything.wait()
    return count / (time.perf_counter() - start)


async def _write(producer: Producer, event: bytes, count: int, *, amqp: bool = False) -> float:
    """Write; the server confirms in order, so that the last event's confirmation is that of all."""
    from rstream import AMQPMessage

    message = AMQPMessage(body=event) if amqp else event
    await producer.send_wait(_TOPIC, message)  # connects, and declares the publisher
    size = max(1, min(_BATCH_EVENTS_MAX, _BATCH_BYTES_MAX // len(event)))
    start = time.perf_counter()
    for left in range(count - 1, 0, -size):
        await producer.send_batch(_TOPIC, [message] * min(size, left))
    await producer.send_wait(_TOPIC, message, timeout=_MEASURE_SECONDS_MAX)
    return count / (time.perf_counter() - start)


# Ends the server and removes its folder when its input ends, which it also does when the benchmark is killed. The
# server needs epmd, and would leave one behind if it did not find ours.
_KEEPER: Final = """
epmd & epmd=$!
"$1" & server=$!
read -r _
kill $server; wait $server
kill $epmd; wait $epmd
rm -rf "$2"
"""


@contextmanager
def rabbitmq(parent: Path | None = None) -> Iterator[RabbitMQ]:
    """Run a server on loopback, in a folder of its own in ``parent``; end it and remove the folder."""
    _need("rstream", peer="RabbitMQ")
    server = _find_server()
    if server is None or shutil.which("epmd") is None:
        raise PeerMissing("RabbitMQ", _HOW_TO_INSTALL)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rabbitmq-", dir=parent))).resolve()
        stream_port, dist_port, epmd_port = _free_ports(3)
        environment = _configure(folder, stream_port=stream_port, dist_port=dist_port, epmd_port=epmd_port)
        output = folder / "output"
        stack.enter_context(_keeper(server, folder, environment, output))
        _wait_for_start(output)
        yield RabbitMQ(stream_port)


@contextmanager
def _keeper(server: Path, folder: Path, environment: dict[str, str], output: Path) -> Iterator[None]:
    with output.open("wb") as out:
        keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, "sh", server, folder],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=folder,
            env=environment,
            start_new_session=True,  # what interrupts the benchmark is not to interrupt its clearing up
        )
    try:
        yield
    finally:
        try:
            keeper.communicate(timeout=_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(keeper.pid, signal.SIGKILL)
            keeper.wait()


def _configure(folder: Path, *, stream_port: int, dist_port: int, epmd_port: int) -> dict[str, str]:
    """Write what the server reads; return its environment. All that it listens on is loopback."""
    config = folder / "rabbitmq.conf"
    config.write_text(
        "listeners.tcp = none\n"
        f"stream.listeners.tcp.1 = {_LOOPBACK}:{stream_port}\n"
        f"stream.advertised_host = {_LOOPBACK}\n"
        f"stream.advertised_port = {stream_port}\n"
    )
    plugins = folder / "enabled_plugins"
    plugins.write_text("[rabbitmq_stream].\n")
    return {
        **os.environ,
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": _LOOPBACK,
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),  # else that of the machine counts
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{{_LOOPBACK.replace('.', ',')}}}",
    }


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((_LOOPBACK, 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in sockets]


def _wait_for_start(output: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while "Starting broker... completed" not in (said := output.read_text(errors="replace")):
        if time.monotonic() > deadline:
            raise PeerMissing("RabbitMQ", f"it did not start; its last words: {said[-1000:]}")
        time.sleep(0.1)


def _find_server() -> Path | None:
    """Find the script itself: Debian's command of the same name, a link, insists on users and folders of its own."""
    command = shutil.which("rabbitmq-server", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    return None if command is None else Path(command).resolve().with_name("rabbitmq-server")


_HOW_TO_INSTALL: Final = (
    "no rabbitmq-server: run python -m bench._peers as root on Debian or Ubuntu, or install the server (3.9 or newer)"
)


def install() -> None:
    """Install the clients, and the servers of RabbitMQ and Redis where apt can; elsewhere say what to do.

    Where systemd runs, Debian's packages also start servers for the whole machine, which no benchmark uses.
    """
    constraints = Path(__file__).parent.parent / "constraints.txt"
    pip = [sys.executable, "-m", "pip", "install", "--constraint", str(constraints)]
    subprocess.run([*pip, "penstock-stream[bench]"], check=True)
    found = {"rabbitmq-server": _find_server(), "redis-server": shutil.which("redis-server")}
    packages = [package for package, program in found.items() if program is None]
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"these servers are missing: {', '.join(packages)}; install them, or go on without them")
    subprocess.run(["apt-get", "update", "-qq"], check=False)  # the lists it has may do
    apt = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages]
    subprocess.run(apt, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


if __name__ == "__main__":
    install()
