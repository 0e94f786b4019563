"""What a user of Spark calls first, and what tasks call."""

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
    """Let a session of Spark, or of Spark Connect, read and write ``format("penstock")``.

    A thread that writes calls it, too: Spark knows a sink only in threads that know their session. ``store`` is where
    :func:`open_event` looks in tasks that this thread starts from now on.
    """
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None and context.pythonExec == "python3" and str(context.master).startswith("local"):
        context.pythonExec = sys.executable  # or Spark takes the system's Python, which does not know Penstock
    spark.dataSource.register(PenstockSource)
    if spark.conf.get(_PUSH_FILTERS) != "true":  # a declarative pipeline may set nothing, its configuration can
        spark.conf.set(_PUSH_FILTERS, "true")
    if context is not None:
        # Spark looks for a sink in the session that its thread knows, and threads of a program may know none.
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    if store is not None:
        if context is None:
            raise BadArgument("register() takes no store in a session of Spark Connect: give it to open_event")
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
    """Return an event as a file, in a task or anywhere: for those that are too large for a row.

    ``store`` is by default the one that was given to :func:`register`. Who asks is said as to ``penstock.connect``.
    """
    if store is None:
        context = TaskContext.get()
        store = None if context is None else context.getLocalProperty(_STORE)
        if store is None:
            raise BadArgument("open_event does not know the store: give it, or register(spark, store=…) first")
    one = pointer if isinstance(pointer, EventPointer) else EventPointer.parse(pointer)
    return shared(Address(os.fspath(store), user, password, token, tls_ca)).fetch_event_as_stream(one)
