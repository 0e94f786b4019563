"""A session of Spark for those who do not bring one: on this machine, and quiet."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["local_session"]


@contextmanager
def local_session(name: str) -> Iterator[SparkSession]:
    """Start Spark on all cores of this machine, or where spark-defaults.conf says; stop it at the end of the block."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(f"penstock {name}")
    for setting, value in {
        "spark.log.level": "OFF",  # what goes wrong comes out as an exception
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
