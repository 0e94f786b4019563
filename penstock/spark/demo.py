"""The pipeline of ``penstock demo``: three plants whose readings arrive late and out of order, and Spark that counts.

One plant is punctual, one sends out of order, and the third is offline for two minutes: its readings of that time
arrive at once, long after those of the others. Time is simulated: whenever forty seconds of it have been written,
both queries read what is new, so the result is the same on every machine.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.model import StreamCut
from penstock.spark._jobs import archive
from penstock.spark._options import Address
from penstock.spark._register import register
from penstock.spark._stores import open_at
from penstock.spark._watermark import with_writer_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store
    from penstock.stream import StreamWriter

__all__ = ["STREAM", "WINDOW_S", "Reading", "Story", "tell"]

STREAM: Final = "plant/readings"
WINDOW_S: Final = 30
GUESS_S: Final = 10
LARGE_SIZE: Final = 64 << 20
_BEGIN: Final = int(datetime(2026, 11, 1, 8, tzinfo=UTC).timestamp())
_LENGTH_S: Final = 600
_ROUND_S: Final = 40
_PER_SECOND: Final = 20
_DOWN: Final = (200, 320)  # when the third plant is offline
_SCHEMA: Final = "n bigint, plant string, at bigint"


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading: when it was measured and when it arrived, in seconds of simulated time."""

    number: int
    plant: str
    at: float
    came: float


@dataclass(slots=True)
class Story:
    """The results, for the table and the chart; windows are keyed by the second at which they start."""

    readings: list[Reading] = field(default_factory=list)
    exact: Counter[int] = field(default_factory=Counter)
    guessed: Counter[int] = field(default_factory=Counter)
    lost: set[int] = field(default_factory=set)  # numbers of readings that Spark's own watermark dropped
    exact_line: list[tuple[float, float]] = field(default_factory=list)  # the promise over time
    guessed_line: list[tuple[float, float]] = field(default_factory=list)
    archived: int = 0
    large_is_whole: bool = False
    seconds: float = 0.0

    @property
    def windows(self) -> Counter[int]:
        """The true number of readings of each window."""
        return Counter(int(reading.at // WINDOW_S) * WINDOW_S for reading in self.readings if reading.at < _LENGTH_S)


def readings() -> list[Reading]:
    """Return all readings, in the order of arrival."""
    chance = random.Random(7)
    found: list[tuple[float, float, str]] = []
    for plant in ("north", "west", "south"):
        for index in range(_LENGTH_S * _PER_SECOND):
            at = index / _PER_SECOND
            delay = {"north": 0.2, "west": chance.uniform(0, 8), "south": chance.uniform(0, 2)}[plant]
            if plant == "south" and _DOWN[0] <= at < _DOWN[1]:
                delay = _DOWN[1] - at + chance.uniform(0, 2)
            found.append((at + delay, at, plant))
    found.append((_LENGTH_S + 60.0, _LENGTH_S + 60.0, "north"))  # long after all others, so that every window closes
    found.sort()
    return [Reading(number, plant, at, came) for number, (came, at, plant) in enumerate(found)]


def tell(spark: SparkSession, folder: Path, say: Callable[[str], object]) -> Story:
    """Run the pipeline in an empty folder."""
    begun = time.perf_counter()
    story = Story(readings())
    register(spark)
    (folder / "data").mkdir()
    with open_at(Address(str(folder / "data"))) as store:
        store.create_stream(STREAM, segments=2)
        writers = {plant: _Plant(store.writer(STREAM, plant), story.readings) for plant in ("north", "west", "south")}
        say("starting two queries: with the writers' watermark, and with Spark's own")
        exact = _start(_exact(spark, folder), "exact")
        guessed = _start(_guessed(spark, folder), "guessed")
        large = threading.Thread(target=_write_large, args=(store,))
        large.start()
        for now in _write_all(story.readings, writers):
            minutes = f"{min(now, _LENGTH_S) / 60:.0f} of {_LENGTH_S / 60:.0f} simulated minutes"
            say(f"{minutes}: three plants write, two queries count")
            _await_time(store, writers)
            for query in (exact, guessed):
                query.processAllAvailable()
            story.exact_line.append((now, _watermark(exact)))
            story.guessed_line.append((now, _watermark(guessed)))
        large.join()
        for query in (exact, guessed):
            query.stop()
        story.exact, story.guessed = (_counts(spark, name) for name in ("exact", "guessed"))
        story.lost = set(_late(store, guessed))
        say("archiving to Parquet")
        story.archived = archive(spark, folder / "data", STREAM, folder / "archive").rows
        story.large_is_whole = _is_whole(folder / "archive")
    story.seconds = time.perf_counter() - begun
    return story


def _write_all(all_readings: list[Reading], writers: dict[str, _Plant]) -> Iterator[float]:
    """Write readings as they arrive, in rounds; yield the simulated time after each."""
    done, now = 0, 0.0
    while done < len(all_readings):
        now += _ROUND_S
        while done < len(all_readings) and all_readings[done].came <= now:
            reading = all_readings[done]
            writers[reading.plant].send(reading)
            done += 1
        for plant in writers.values():
            plant.promise(now)
        yield now


class _Plant:
    """Writes the readings of one plant, and notes the times up to which they are complete."""

    def __init__(self, writer: StreamWriter, all_readings: list[Reading]) -> None:
        self._writer = writer
        self._waiting = [(reading.at, reading.number) for reading in all_readings if reading.plant == writer.writer_id]
        self._sent: set[int] = set()
        self.promised = 0.0
        heapq.heapify(self._waiting)
        writer.note_time(_BEGIN * 1000)

    def send(self, reading: Reading) -> None:
        """Write one reading."""
        event = {"n": reading.number, "plant": reading.plant, "at": int((_BEGIN + reading.at) * 1000)}
        self._writer.write_event(json.dumps(event).encode(), key=reading.plant)
        self._sent.add(reading.number)

    def promise(self, now: float) -> None:
        """Note the time up to which all readings are sent."""
        while self._waiting and self._waiting[0][1] in self._sent:
            heapq.heappop(self._waiting)
        self.promised = min(self._waiting[0][0], now) if self._waiting else now
        self._writer.flush()
        self._writer.note_time(int((_BEGIN + self.promised) * 1000))


def _write_large(store: Store) -> None:
    """Write one large event as a file."""
    with store.writer(STREAM) as writer, writer.begin_write_event("camera") as out:
        for number in range(LARGE_SIZE >> 20):
            out.write(_large_part(number))


def _large_part(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * (1 << 15)


def _is_whole(table: Path) -> bool:
    """Return whether the archive has the large event, byte for byte."""
    files = list((table / "_large").iterdir())
    wanted = hashlib.sha256()
    for number in range(LARGE_SIZE >> 20):
        wanted.update(_large_part(number))
    with files[0].open("rb") as file:
        return len(files) == 1 and hashlib.file_digest(file, "sha256").digest() == wanted.digest()


def _await_time(store: Store, writers: dict[str, _Plant]) -> None:
    """Wait until the noted times have become a watermark."""
    wanted = int((_BEGIN + min(writer.promised for writer in writers.values())) * 1000)
    while (mark := store.watermark(STREAM)) is None or mark.lower < wanted:
        store.maintain()


def _source(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.format("penstock").option("store", str(folder / "data")).option("stream", STREAM)
    reader = reader.option("format", "json").option("json_schema", _SCHEMA)
    return reader.option("on_corrupt", "column").load()  # the film is not JSON


def _exact(spark: SparkSession, folder: Path) -> DataFrame:
    return with_writer_watermark(_source(spark, folder), "time", F.timestamp_millis("at"))


def _guessed(spark: SparkSession, folder: Path) -> DataFrame:
    timed = _source(spark, folder).where("at IS NOT NULL").withColumn("time", F.timestamp_millis("at"))
    return timed.withWatermark("time", f"{GUESS_S} seconds")


def _start(df: DataFrame, name: str) -> StreamingQuery:
    counts = df.where("at IS NOT NULL").groupBy(F.window("time", f"{WINDOW_S} seconds")).count()
    return counts.writeStream.format("memory").queryName(name).outputMode("append").start()


def _counts(spark: SparkSession, table: str) -> Counter[int]:
    rows = spark.table(table).select(F.col("window.start").cast("long").alias("start"), "count").collect()
    return Counter({row["start"] - _BEGIN: row["count"] for row in rows})


def _watermark(query: StreamingQuery) -> float:
    """Return the watermark of a query, in seconds of simulated time."""
    last = query.lastProgress
    return 0.0 if last is None else _seconds(last.eventTime.get("watermark")) or 0.0


def _seconds(text: str | None) -> float | None:
    """Return a watermark of Spark's in seconds of simulated time; Spark reports 1970 before there is one."""
    if text is None or (time := datetime.fromisoformat(text).timestamp()) <= 0:
        return None
    return time - _BEGIN


def _late(store: Store, query: StreamingQuery) -> Iterator[int]:
    """Return the readings that a query dropped as late: their window was closed when they arrived.

    The watermark of the previous batch decides: the one that a batch reports closes windows after the batch.
    """
    marks = {progress.batchId: _seconds(progress.eventTime.get("watermark")) for progress in query.recentProgress}
    for progress in query.recentProgress:
        start, end = (json.loads(offset) for offset in (progress.sources[0].startOffset, progress.sources[0].endOffset))
        mark = marks.get(progress.batchId - 1)
        if not progress.numInputRows or mark is None or start is None:
            continue
        for batch in store.read(STREAM, StreamCut.parse(start["cut"]), StreamCut.parse(end["cut"])):
            for event in batch.column("event").drop_null().to_pylist():
                reading = json.loads(event)
                at = reading["at"] / 1000 - _BEGIN
                if at // WINDOW_S * WINDOW_S + WINDOW_S <= mark:
                    yield reading["n"]
