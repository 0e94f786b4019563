"""``register``, which users of Spark call first, and ``open_event``, which tasks call."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.errors import BadArgument
from penstock.model import EventPointer
from penstock.spark._options import Address
from penstock.spark._source import PenstockSource
from penstock.spark._stores import shared

if TYPE_CHECKING:
    from penstock.stream.read import EventInputStream

__all__ = ["open_event", "register"]

_STORE: Final = "penstock.store"
_PUSH_FILTERS: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, store: str | os.PathLike[str] | None = None) -> None:
    """Enable ``format("penstock")`` in a session of Spark or Spark Connect.

    Call it in every thread that writes: Spark finds a sink only in threads that have a session. ``store`` is the
    default store of :func:`open_event` in tasks that this thread starts from now on.
    """
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None and context.pythonExec == "python3" and str(context.master).startswith("local"):
        context.pythonExec = sys.executable  # or Spark uses the system's Python, in which Penstock is not installed
    spark.dataSource.register(PenstockSource)
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
    one = pointer if isinstance(pointer, EventPointer) else EventPointer.parse(pointer)
    return shared(Address(os.fspath(store), user, password, token, tls_ca)).fetch_event_as_stream(one)
