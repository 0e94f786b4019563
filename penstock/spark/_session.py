"""A local, quiet Spark session for commands."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.spark._errors import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["local_session"]

_QUIET: Final = Path(__file__).with_name("quiet.properties")  # for Spark's log


@contextmanager
def local_session(name: str) -> Iterator[SparkSession]:
    """Start Spark on all cores of this machine, or as spark-defaults.conf says; stop it at the end of the block.

    An existing session is used and not stopped. Errors of Spark's become one line.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    of_spark = map(PySparkLogger.getLogger, ("SQLQueryContextLogger", "DataFrameQueryContextLogger"))
    for logger in (logging.getLogger("py4j"), *of_spark):
        logger.setLevel(logging.CRITICAL + 1)  # what is raised, they print as well
    builder = SparkSession.builder.appName(f"penstock {name}")
    for setting, value in {
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_QUIET.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }.items():
        builder = builder.config(setting, value)
    is_ours = SparkSession.getActiveSession() is None
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler would call Java during another call
    try:
        yield session
    except PySparkException as error:
        raise in_one_line(error) from None
    finally:
        if is_ours:
            session.stop()
