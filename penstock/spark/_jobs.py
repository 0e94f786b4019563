"""Jobs: whole pipelines that are started with one call, and started again where they were stopped.

Each is exactly-once: what it has written of a batch, it writes again or leaves as it is, and never twice.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import BadArgument
from penstock.model import ByConsumption
from penstock.spark._duration import milliseconds_of
from penstock.spark._errors import told_by
from penstock.spark._forwarding import forward_watermark, note_watermark
from penstock.spark._job import Job
from penstock.spark._options import plain_name, source_options
from penstock.spark._progress import Looks, Progress, end_cuts
from penstock.spark._register import register
from penstock.spark._stores import open_at
from penstock.spark._tables import LARGE, Archive, clear_attempts, delta_writer, parquet_writer, sync
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
_LOOK_S: Final = 0.5


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
    """Move the events of a stream to a table of Parquet, or Delta, that is partitioned by date.

    ``date`` is an expression of SQL over the source's columns: by default the day that the stream's writers have come
    to. Events that are too large for a row become files in the table's folder, which the column ``file`` names. The
    archive is registered as a consumer. With ``discard`` the stream is kept by consumption from now on: what the
    archive and all other consumers have passed is let go. Without ``follow`` the job ends when it has all that is
    there. ``options`` are more options of the source.
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
    """Merge the events of several streams into one, where they have places, and so ids, of its own.

    Events keep their headers and their keys, and one without a key gets the name of its stream; so what was in order
    stays so. ``key`` is another expression of SQL over the source's columns. Events that are too large for a row are
    copied as files are.
    """
    if not streams or into in streams or len(set(streams)) < len(streams):
        raise BadArgument("name the streams to merge, each once, and another to merge them into")
    given = [{"max_bytes_per_trigger": _BATCH_SIZE} | _settings(store, one, options) for one in streams]
    first = source_options(given[0])
    place = _folder(checkpoint or _checkpoint(first, f"aggregate-{into}"))
    job = Job.at(place, "aggregate", first.address, *streams, into)
    settings = [one | {"consumer": job.consumer, "include_headers": "true"} for one in given]
    sources = [source_options(one) for one in settings]
    tables = [_load(spark, one).selectExpr("event", "pointer", "headers", f"{key} AS key") for one in settings]
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
    """Add up the events of every window of time, and write each window when the writers have promised it is over.

    ``time``, ``group_by`` and ``values`` are expressions of SQL over the source's columns: when an event happened, what
    it belongs to, and what to add up. ``length`` and ``slide`` are as in "10 minutes". Windows become rows of a table
    of Parquet, or JSON events of the stream ``into``, to which the time that the writers have come to is passed on.
    ``promise`` says which field of those events that time is true of: who takes the ``start`` of windows for their time
    would find all of them late by a promise about their ends.
    """
    if promise not in ("end", "start"):
        raise BadArgument(f"promise cannot be {promise!r}: it is 'end' or 'start', of the windows")
    if (table is None) == (into is None):
        raise BadArgument("windows go to a table or into a stream: name one of them")
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
    """Return the options of a source, those of the user among them."""
    more = dict(options or {})
    for name in more:
        if plain_name(name) in ("store", "stream", "subscribe", "subscribepattern", "consumer"):
            raise BadArgument(f"{name!r} is no option of a job's source: the job has an argument for it, or its own")
    return {"store": _whole(store), "stream": stream} | more


def _folder(place: str | os.PathLike[str]) -> str:
    """Return the whole path of a folder that jobs write to themselves; no other place will do."""
    if "://" in os.fspath(place):
        raise BadArgument(f"jobs keep tables and checkpoints in folders: {os.fspath(place)} is none")
    return _whole(place)


def _each(write: Callable[[DataFrame, int], object], checkpoint: str) -> Callable[[DataFrame, int], None]:
    """Return what writes a batch, of which Spark's own note is seen durable: it must be the same if it comes again."""

    def run(df: DataFrame, batch: int) -> None:
        offsets = Path(checkpoint, "offsets")
        sync(offsets / str(batch), offsets)
        try:
            write(df, batch)
        except (Py4JError, PySparkException) as error:  # hundreds of lines, over which Java stumbles if it is stopping
            raise told_by(error) or PySparkRuntimeError(" ".join(str(error).split("\n")[:2])) from None

    return run


def _refuse_taken(df: DataFrame, *names: str) -> None:
    """Refuse columns that the result has by itself."""
    if taken := {*names} & {name.lower() for name in df.columns}:
        raise BadArgument(f"the result has a column {min(taken)!r} of its own: give that of the events another name")


def _whole(place: str | os.PathLike[str]) -> str:
    """Return the whole path of a folder: Spark's processes were started elsewhere, maybe."""
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
    """Return what writes to a stream of the same store, as the same user."""
    names = ("store", "user", "password", "token", "tlsca")
    known = {name: value for name, value in settings.items() if plain_name(name) in names}
    return df.writeStream.format("penstock").options(**known | {"stream": into})


def _checkpoint(source: SourceOptions, name: str) -> Path:
    """Return where a job that writes to a stream keeps its checkpoint, if the store is a folder."""
    if "://" in source.address.store:
        raise BadArgument("the store is not a folder: say where the job keeps its checkpoint, with checkpoint=")
    return Path(source.address.store, "checkpoints", name.replace("/", "."))


def _check_discard(source: SourceOptions) -> None:
    """Refuse to change how a stream is kept whose owner has said so."""
    with open_at(source.address) as store:
        kept = store.stream(source.stream).config.retention
    if kept is not None and not isinstance(kept, ByConsumption):
        name = type(kept).__name__
        raise BadArgument(f"stream {source.stream!r} is kept {name}: change that, or leave out discard")


def _keep_what_is_to_come(source: SourceOptions, *, discard: bool) -> None:
    """Register a consumer, if it is new, at the head; then, not before, let go what all consumers have passed."""
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
    """Run a query to its end, or until it is interrupted; errors of ours come out as they are.

    ``into`` is a stream that its watermark is passed on to, less a delay.
    """
    writer = writer.option("checkpointLocation", f"file://{checkpoint}")
    try:
        query = (writer if follow else writer.trigger(availableNow=True)).start()
        looks = Looks(query)
        with ThreadPoolExecutor(1) as thread:  # an interrupt must not meet a question to Java that has no answer yet
            try:
                if into is not None:
                    who = asdict(sources[0].address)
                    forward_watermark(query, who.pop("store"), into, delay=delay, **who)
                with suppress(KeyboardInterrupt) if follow else nullcontext():
                    thread.submit(_watch_to_the_end, query, looks, watch).result()
            finally:
                query.stop()
        _note_end(query, sources)
    except PySparkException as error:
        raise told_by(error) or error from None
    done = looks.look()
    if into is not None:  # Spark may still be about to tell of the last batch
        with open_at(sources[0].address) as store:
            note_watermark(store, into, query.id, done.watermark, milliseconds_of("length", delay))
    return done


def _watch_to_the_end(query: StreamingQuery, looks: Looks, watch: Watch | None) -> None:
    while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
        progress = looks.look()
        if watch is not None:
            watch(progress)


def _note_end(query: StreamingQuery, sources: Sequence[SourceOptions]) -> None:
    """Note how far the job has come: Spark tells a source of a batch only when the next one begins."""
    cuts = end_cuts(query)
    for source in sources:
        if source.stream in cuts:
            with open_at(source.address) as store:
                consumer, cut = cuts[source.stream]
                store.register_consumer(source.stream, consumer, cut)
