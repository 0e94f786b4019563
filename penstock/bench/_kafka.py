"""Kafka's client, confluent-kafka, with the mock broker inside librdkafka: it keeps events in memory, and forgets them.

What is measured is the client and the protocol over loopback, without the broker's work: an upper bound of Kafka's
speed on this machine, not a broker's. A broker of its own would need Java.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.bench._system import WAIT_S, NotOffered, SystemUnderTest, need_package

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.bench._system import EventLoad

__all__ = ["KafkaMock"]

_POLL_EVENTS: Final = 1000  # polling after each event costs a quarter of the rate
_CONSUME_EVENTS: Final = 10_000
_BROKER: Final[dict[str, str | int | bool]] = {"test.mock.num.brokers": 1, "log_level": 3}
_PRODUCER: Final[dict[str, str | int | bool]] = {
    "linger.ms": 5,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
    "delivery.report.only.error": True,
}
_PROMPT: Final[dict[str, str | int | bool]] = {"linger.ms": 0}


class KafkaMock(SystemUnderTest):
    """A producer with a broker in it, of which the other clients are told."""

    name = "kafka"
    key = "kafka-mock"
    title = "Kafka client, mock broker"
    is_synced = False
    is_default = True
    stored_bytes_max: ClassVar[int | None] = 4_000_000  # the mock broker forgets what is more than 5 MB old
    settings: ClassVar[Mapping[str, str]] = {
        "client": "confluent-kafka (librdkafka)",
        "acknowledged": "when the mock broker has it in memory; nothing is written to a disk",
        "in flight": "up to 1,000,000 events in the client's queue, of which it sends five requests at a time",
        "batch": "none; the client forms batches of up to 10,000 (linger.ms 5; 0 where one event is timed)",
        "read": "timed from the first event on",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._owner: Any = None
        self._address = ""

    @classmethod
    def check(cls) -> None:
        """Need the client."""
        need_package("confluent_kafka")

    def start(self) -> None:
        """Make the client that has the broker, and find out the broker's address."""
        from confluent_kafka import Producer

        self._owner = Producer(_BROKER)
        brokers = self._owner.list_topics(timeout=WAIT_S).brokers
        self._address = next(f"{broker.host}:{broker.port}" for broker in brokers.values())

    def stop(self) -> None:
        """Forget the broker."""
        self._owner = None

    def _producer(self, **options: str | int | bool) -> Any:  # noqa: ANN401 - confluent-kafka's
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self._address, "log_level": 3, **options})

    def _consumer(self, topic: str) -> Any:  # noqa: ANN401
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        fixed = {"bootstrap.servers": self._address, "log_level": 3, "group.id": topic, "enable.auto.commit": False}
        consumer = Consumer(fixed)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return consumer

    def write_each(self, load: EventLoad) -> float:
        """Call ``produce`` for each."""
        return self._write(self.new_name(), load)

    def write_batches(self, load: EventLoad) -> float:
        """Write as event by event: the client forms the batches."""
        return self.write_each(load)

    def fill(self, load: EventLoad) -> str:
        """Produce."""
        name = self.new_name()
        self._write(name, load)
        return name

    def _write(self, topic: str, load: EventLoad) -> float:
        failures: list[object] = []
        producer = self._producer(**_PRODUCER, on_delivery=lambda error, _: failures.append(error))  # type: ignore[arg-type]
        producer.produce(topic, b"first", partition=0)  # connects, and makes the topic
        _flush(producer, failures)
        sent = 0
        start = time.perf_counter()
        while sent < load.count:
            try:
                for _ in range(min(_POLL_EVENTS, load.count - sent)):
                    producer.produce(topic, load.event, partition=0)
                    sent += 1
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)
        _flush(producer, failures)
        return time.perf_counter() - start

    def read_each(self, stream: str, load: EventLoad) -> float:
        """Call ``poll`` for each."""
        consumer = self._consumer(stream)
        try:
            _value(consumer.poll(WAIT_S))  # the first answer of the mock broker takes half a second
            start = time.perf_counter()
            for _ in range(load.count):
                _value(consumer.poll(WAIT_S))
            return time.perf_counter() - start
        finally:
            consumer.close()

    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Call ``consume`` for up to 10,000 at a time."""
        consumer = self._consumer(stream)
        try:
            _value(consumer.poll(WAIT_S))
            found = 0
            start = time.perf_counter()
            while found < load.count:
                messages = consumer.consume(min(_CONSUME_EVENTS, load.count - found), timeout=WAIT_S)
                _value(messages[-1] if messages else None)
                found += len(messages)
            return time.perf_counter() - start
        finally:
            consumer.close()

    def write_singly(self, load: EventLoad) -> list[float]:
        """Flush after each."""
        topic, times = self.new_name(), []
        producer, failures = self._prompt_producer(topic)
        for _ in range(load.count):
            start = time.perf_counter()
            producer.produce(topic, load.event, partition=0)
            _flush(producer, failures)
            times.append(time.perf_counter() - start)
        return times

    def _prompt_producer(self, topic: str) -> tuple[Any, list[object]]:
        failures: list[object] = []
        producer = self._producer(
            **_PROMPT,
            **{"delivery.report.only.error": True},
            on_delivery=lambda error, _: failures.append(error),  # type: ignore[arg-type]
        )
        producer.produce(topic, b"first", partition=0)
        _flush(producer, failures)
        return producer, failures

    def tail(self, load: EventLoad) -> list[float]:
        """State why there is no figure."""
        del load
        raise NotOffered("the mock broker wakes no reader: it answers when the time to wait is up")

    def large(self, size: int) -> tuple[float, float]:
        """State the limits."""
        del size
        raise NotOffered("1 MB an event by default, 1 GB at most (message.max.bytes); the mock broker has 5 MB a topic")

    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Write to each: the broker makes a topic at its first event."""
        producer, failures = self._prompt_producer(self.new_name())
        start = time.perf_counter()
        done = 0
        while done < number and time.perf_counter() - start < seconds_max:
            producer.produce(self.new_name(), b"event", partition=0)
            _flush(producer, failures)
            done += 1
        return done, time.perf_counter() - start

    def restart(self, stream: str, load: EventLoad) -> float:
        """State that nothing is there after a restart."""
        del stream, load
        raise NotOffered("the mock broker keeps nothing")


def _flush(producer: Any, failures: list[object]) -> None:  # noqa: ANN401 - confluent-kafka's
    left = producer.flush(WAIT_S)
    if left or failures:
        raise RuntimeError(f"{left} events were not acknowledged, {len(failures)} failed: {failures[:1]}")


def _value(message: Any) -> bytes:  # noqa: ANN401 - confluent-kafka's
    if message is None:
        raise TimeoutError(f"no event within {WAIT_S:g} s")
    if message.error() is not None:
        raise RuntimeError(str(message.error()))
    value: bytes = message.value()
    return value
