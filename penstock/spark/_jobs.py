"""Jobs: whole pipelines that one call starts, and that continue where they stopped.

Each has exactly-once semantics: a batch that is run again is replaced or found complete, and never written twice.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.checkpoints import sync
from penstock.errors import BadArgument
from penstock.model import ByConsumption
from penstock.spark._errors import told_by
from penstock.spark._job import Job
from penstock.spark._options import milliseconds_of, plain_name, source_options
from penstock.spark._progress import Progress, ProgressCounter, end_cuts, forward_watermark, note_watermark
from penstock.spark._register import register
from penstock.spark._stores import open_at
from penstock.spark._tables import LARGE, Archive, clear_attempts, delta_writer, parquet_writer
from penstock.spark._watermark import with_writer_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark._options import SourceOptions

    Watch = Callable[[Progress], object]

__all__ = ["aggregate", "archive", "windows"]

_BATCH_SIZE: Final = "256m"
_POLL_S: Final = 0.5


def archive(
    spark: SparkSession,
    store: str | os.PathLike[str],
    stream: str,
    table: str | os.PathLike[str],
    *,
    date: str = "coalesce(mark_time, current_timestamp())",
    delta: bool = False,
    discard: bool = False,
    consumer: str | None = None,
    follow: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    options: Mapping[str, str] | None = None,
) -> Progress:
    """Copy the events of a stream to a Parquet or Delta table that is partitioned by date.

    ``date`` is an SQL expression over the source's columns: by default the day of the writers' watermark. Events that
    are too large for a row become files in the table's folder, which the column ``file`` names. The archive is
    registered as a consumer. With ``discard`` the stream is switched to retention by consumption: events that the
    archive and all other consumers have read are removed. Without ``follow`` the job ends when it has processed what is
    there. ``options`` are additional options of the source.
    """
    folder = _folder(table)
    place = _folder(checkpoint or Path(folder, "_checkpoint"))
    given = {"max_bytes_per_trigger": _BATCH_SIZE} | _settings(store, stream, options)
    job = Job.at(place, "archive", source_options(given).address, stream, consumer=consumer)
    settings = given | {"consumer": job.consumer}
    source = source_options(settings)
    df = _load(spark, settings)
    _refuse_taken(df, "date", "batch", "file")
    df = df.withColumn("date", F.to_date(F.expr(date)))
    is_large = F.col("size") > source.max_event_size
    file = F.concat(F.lit(f"{LARGE}/{job.name}-"), F.col("segment_id"), F.lit("-"), F.col("offset"))
    df = df.withColumn("file", F.when(is_large, file))
    write = delta_writer(folder, job.name) if delta else parquet_writer(folder, job.name)
    kept = Archive(write, folder, source.address)
    query = df.writeStream.foreachBatch(_each(kept.add, place))
    if discard:
        _check_discard(source)
    with job.held():
        clear_attempts(folder, job.name)
        _keep_what_is_to_come(source, discard=discard)
        done = _run(query, place, source, follow=follow, watch=watch)
    return replace(done, rows=kept.rows)  # Spark counts a batch twice that has large events


def aggregate(
    spark: SparkSession,
    store: str | os.PathLike[str],
    streams: Sequence[str],
    into: str,
    *,
    key: str = "coalesce(key, cast(concat(scope, '/', stream) AS binary))",
    follow: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    options: Mapping[str, str] | None = None,
) -> Progress:
    """Merge the events of several streams into one, in which they get new positions, and so new ids.

    Events keep their headers and keys; an event without a key gets the name of its stream, so order is preserved.
    ``key`` is another SQL expression over the source's columns. Events that are too large for a row are copied as
    files.
    """
    if not streams or into in streams or len(set(streams)) < len(streams):
        raise BadArgument("name the streams to merge, each once, and another to merge them into")
    given = [{"max_bytes_per_trigger": _BATCH_SIZE} | _settings(store, stream, options) for stream in streams]
    first = source_options(given[0])
    place = _folder(checkpoint or _checkpoint(first, f"aggregate-{into}"))
    job = Job.at(place, "aggregate", first.address, *streams, into)
    settings = [setting | {"consumer": job.consumer, "include_headers": "true"} for setting in given]
    sources = [source_options(setting) for setting in settings]
    tables = [_load(spark, setting).selectExpr("event", "pointer", "headers", f"{key} AS key") for setting in settings]
    df = tables[0]
    for other in tables[1:]:
        df = df.unionAll(other)
    query = _to_stream(df, settings[0], into).option("key", "key").option("pointer", "pointer")
    with job.held():
        return _run(query, place, *sources, follow=follow, watch=watch)


def windows(
    spark: SparkSession,
    store: str | os.PathLike[str],
    stream: str,
    *,
    time: str,
    length: str,
    slide: str | None = None,
    group_by: Sequence[str] = (),
    values: Sequence[str] = ("count(*) AS events",),
    table: str | os.PathLike[str] | None = None,
    into: str | None = None,
    promise: Literal["end", "start"] = "end",
    follow: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    options: Mapping[str, str] | None = None,
) -> Progress:
    """Aggregate events by time windows, and write each window when the writers have promised that it is complete.

    ``time``, ``group_by`` and ``values`` are SQL expressions over the source's columns: the time of an event, what to
    group by, and the aggregates. ``length`` and ``slide`` are durations like "10 minutes". Windows become rows of a
    Parquet table, or JSON events of the stream ``into``, to which the watermark is forwarded. ``promise`` says which
    field of those events the watermark refers to: a reader that uses the ``start`` of windows as their time would find
    all of them late by a promise about their ends.
    """
    if promise not in ("end", "start"):
        raise BadArgument(f"invalid promise {promise!r}: use 'end' or 'start'")
    if (table is None) == (into is None):
        raise BadArgument("windows are written to a table or into a stream: name one of them")
    given = _settings(store, stream, options)
    source = source_options(given)
    if into is not None:
        place = _folder(checkpoint or _checkpoint(source, f"windows-{into}"))
    else:
        assert table is not None, "one of them is given"
        place = _folder(checkpoint or Path(_folder(table), "_checkpoint"))
    job = Job.at(place, "windows", source.address, stream, *([] if into is None else [into]))
    settings = given | {"consumer": job.consumer}
    df = with_writer_watermark(_load(spark, settings), "_time", F.expr(time))
    window = F.window("_time", length, slide).alias("_window")
    counted = df.groupBy(window, *map(F.expr, group_by)).agg(*map(F.expr, values))
    _refuse_taken(counted, "start", "end", *([] if table is None else ["date", "batch"]))
    others = [F.col(f"`{name.replace('`', '``')}`") for name in counted.columns if name != "_window"]
    rows = counted.select("_window.start", "_window.end", *others)
    if into is not None:
        events = rows.select(F.to_json(F.struct("*")).alias("event"), F.col(promise).alias("time"))
        query = _to_stream(events, settings, into).option("time", "time")
    else:
        write = parquet_writer(_folder(str(table)), job.name)
        query = rows.withColumn("date", F.to_date("start")).writeStream.foreachBatch(_each(write, place))
    with job.held():
        if table is not None:
            clear_attempts(_folder(table), job.name)
        delay = length if promise == "start" else "0 seconds"
        return _run(query.outputMode("append"), place, source, follow=follow, watch=watch, into=into, delay=delay)


def _settings(store: str | os.PathLike[str], stream: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of a source, including those of the user."""
    more = dict(options or {})
    for name in more:
        if plain_name(name) in ("store", "stream", "subscribe", "subscribepattern", "consumer"):
            raise BadArgument(
                f"{name!r} is not an option of a job's source: the job sets it itself, or has an argument for it"
            )
    return {"store": _whole(store), "stream": stream} | more


def _folder(place: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder that jobs write to themselves; refuse anything but a folder."""
    if "://" in os.fspath(place):
        raise BadArgument(f"jobs keep tables and checkpoints in folders: {os.fspath(place)} is not a folder")
    return _whole(place)


def _each(write: Callable[[DataFrame, int], object], checkpoint: str) -> Callable[[DataFrame, int], None]:
    """Return a batch writer that first makes Spark's own record of the batch durable: a retry must be the same."""

    def run(df: DataFrame, batch: int) -> None:
        offsets = Path(checkpoint, "offsets")
        sync(offsets / str(batch), offsets)
        try:
            write(df, batch)
        except (Py4JError, PySparkException) as error:  # hundreds of lines, on which Java fails while it is stopping
            raise told_by(error) or PySparkRuntimeError(" ".join(str(error).split("\n")[:2])) from None

    return run


def _refuse_taken(df: DataFrame, *names: str) -> None:
    """Refuse columns with the names of result columns."""
    if taken := {*names} & {name.lower() for name in df.columns}:
        raise BadArgument(f"the result already has a column {min(taken)!r}: rename that of the events")


def _whole(place: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder, because Spark's processes may run in another folder."""
    text = os.fspath(place)
    return text if "://" in text or text == "memory:" else os.path.abspath(text)


def _load(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    register(spark)
    reader = spark.readStream.format("penstock").options(**settings)
    try:
        return reader.load()
    except PySparkException as error:
        raise told_by(error) or error from None


def _to_stream(df: DataFrame, settings: Mapping[str, str], into: str) -> DataStreamWriter:
    """Return a batch writer to a stream of the same store, as the same user."""
    names = ("store", "user", "password", "token", "tlsca")
    known = {name: value for name, value in settings.items() if plain_name(name) in names}
    return df.writeStream.format("penstock").options(**known | {"stream": into})


def _checkpoint(source: SourceOptions, name: str) -> Path:
    """Return the default checkpoint of a job that writes to a stream; the store must be a folder."""
    if "://" in source.address.store:
        raise BadArgument("the store is not a folder: name a folder for the job's checkpoint with checkpoint=")
    return Path(source.address.store, "checkpoints", name.replace("/", "."))


def _check_discard(source: SourceOptions) -> None:
    """Refuse to replace a retention policy that was set explicitly."""
    with open_at(source.address) as store:
        kept = store.stream(source.stream).config.retention
    if kept is not None and not isinstance(kept, ByConsumption):
        name = type(kept).__name__
        raise BadArgument(f"stream {source.stream!r} is kept {name}: change that, or leave out discard")


def _keep_what_is_to_come(source: SourceOptions, *, discard: bool) -> None:
    """Register a new consumer at the head; only then enable retention by consumption."""
    assert source.consumer is not None, "the job has a name"
    with open_at(source.address) as store:
        config = store.stream(source.stream).config
        if source.consumer not in store.consumers(source.stream):
            store.register_consumer(source.stream, source.consumer)
        if discard and config.retention is None:
            store.update_stream(source.stream, msgspec.structs.replace(config, retention=ByConsumption()))


def _run(
    writer: DataStreamWriter,
    checkpoint: str,
    *sources: SourceOptions,
    follow: bool,
    watch: Watch | None,
    into: str | None = None,
    delay: str = "0 seconds",
) -> Progress:
    """Run a query to its end, or until it is interrupted; raise errors of ours as they are.

    ``into`` is a stream to which its watermark is forwarded, less a delay.
    """
    writer = writer.option("checkpointLocation", f"file://{checkpoint}")
    try:
        query = (writer if follow else writer.trigger(availableNow=True)).start()
        counter = ProgressCounter(query)
        with ThreadPoolExecutor(1) as thread:  # an interrupt must not arrive during a call to Java
            try:
                if into is not None:
                    of = sources[0].address
                    credentials = {"user": of.user, "password": of.password, "token": of.token, "tls_ca": of.tls_ca}
                    forward_watermark(query, of.store, into, delay=delay, **credentials)
                with suppress(KeyboardInterrupt) if follow else nullcontext():
                    thread.submit(_watch_to_the_end, query, counter, watch).result()
            finally:
                query.stop()
        _note_end(query, sources)
    except PySparkException as error:
        raise told_by(error) or error from None
    done = counter.poll()
    if into is not None:  # Spark may not have reported the last batch yet
        with open_at(sources[0].address) as store:
            note_watermark(store, into, query.id, done.watermark, milliseconds_of("length", delay))
    return done


def _watch_to_the_end(query: StreamingQuery, counter: ProgressCounter, watch: Watch | None) -> None:
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
        progress = counter.poll()
        if watch is not None:
            watch(progress)


def _note_end(query: StreamingQuery, sources: Sequence[SourceOptions]) -> None:
    """Record the job's last position: Spark confirms a batch to a source only when the next one starts."""
    cuts = end_cuts(query)
    for source in sources:
        if source.stream in cuts:
            with open_at(source.address) as store:
                consumer, cut = cuts[source.stream]
                store.register_consumer(source.stream, consumer, cut)
