"""The functions that users of Spark call: ``register`` first, ``open_event`` in tasks, and ``to_stream``.

``to_stream`` writes micro-batches with ``foreachBatch``, for output modes that Spark does not offer Python sinks.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.errors import BadArgument
from penstock.model import EventPointer
from penstock.spark._options import Address
from penstock.spark._source import PenstockSource
from penstock.spark._stores import shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from penstock.stream.read import EventInputStream

__all__ = ["open_event", "register", "to_stream"]

_STORE: Final = "penstock.store"
_PUSH_FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
_QUERY: Final = "sql.streaming.queryId"
_REGISTERED: Final = "_penstock_sources"  # an attribute of sessions that know the sources


def _register_sources(spark: SparkSession) -> None:
    spark.dataSource.register(PenstockSource)
    if find_spec("zstandard") is not None:  # of the extra repo
        from penstock.spark._repository import RepositorySource  # noqa: PLC0415

        spark.dataSource.register(RepositorySource)


def register(spark: SparkSession, store: str | os.PathLike[str] | None = None) -> None:
    """Enable ``format("penstock")`` and ``format("penstock-repo")`` in a session of Spark or Spark Connect.

    Call it in every thread that writes: Spark finds a sink only in threads that have a session. ``store`` is the
    default store of :func:`open_event` in tasks that this thread starts from now on.
    """
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None and context.pythonExec == "python3" and str(context.master).startswith("local"):
        context.pythonExec = sys.executable  # or Spark uses the system's Python, in which Penstock is not installed
    if not vars(spark).get(_REGISTERED):  # Spark warns of a second time
        _register_sources(spark)
        vars(spark)[_REGISTERED] = True
    if spark.conf.get(_PUSH_FILTERS) != "true":  # a declarative pipeline may set nothing, its configuration can
        spark.conf.set(_PUSH_FILTERS, "true")
    if context is not None:
        # Spark looks for a sink in the session of its thread, and threads of a program may have none.
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    if store is not None:
        if context is None:
            raise BadArgument("register() takes no store in a Spark Connect session: pass it to open_event")
        text = os.fspath(store)
        context.setLocalProperty(_STORE, text if "://" in text else os.path.abspath(text))


def open_event(
    pointer: str | EventPointer,
    store: str | os.PathLike[str] | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_ca: str | None = None,
) -> EventInputStream:
    """Open an event as a file, in a task or elsewhere: for events that are too large for a row.

    ``store`` is by default that of :func:`register`. The credentials are those of ``penstock.connect``.
    """
    if store is None:
        context = TaskContext.get()
        store = None if context is None else context.getLocalProperty(_STORE)
        if store is None:
            raise BadArgument("open_event needs a store: pass it, or call register(spark, store=…) first")
    parsed = pointer if isinstance(pointer, EventPointer) else EventPointer.parse(pointer)
    return shared(Address(os.fspath(store), user, password, token, tls_ca)).fetch_event_as_stream(parsed)


def to_stream(
    store: str | os.PathLike[str], stream: str | None = None, *, app_id: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes each micro-batch to a stream exactly once.

    ``options`` are those of the sink. Batches are counted under ``app_id``, by default the id of the query, so that a
    batch that Spark runs again is found. With ``outputMode("update")`` each batch has the results that changed: set a
    ``key``; the last event of a key counts.
    """
    text = os.fspath(store)
    given = {"store": text if "://" in text else os.path.abspath(text)} | options
    if stream is not None:
        given["stream"] = stream

    def write(df: DataFrame, batch: int) -> None:
        register(df.sparkSession)
        writer = df.write.format("penstock").mode("append").options(**given)
        writer.option("txn_app_id", app_id or _query_of(df)).option("txn_version", str(batch)).save()

    return write


def _query_of(df: DataFrame) -> str:
    context = getattr(df.sparkSession, "sparkContext", None)  # a session of Spark Connect has none
    found = None if context is None else context.getLocalProperty(_QUERY)
    if found is None:
        raise BadArgument("to_stream cannot determine the query here: pass app_id=, a different one for each query")
    return str(found)
