"""Penstock in Spark: streams as sources and sinks, with the writers' own watermarks.

>>> from penstock.spark import register
>>> register(spark)  # a SparkSession
>>> plant = spark.readStream.format("penstock").option("store", "./data").option("stream", "plant/readings")
>>> plant.load().isStreaming
True

Names are imported at first use: Spark imports this package in each process that plans a query, runs a task or commits a
batch, and none of them needs all of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.spark._jobs import aggregate, archive, windows
    from penstock.spark._progress import Progress, forward_watermark
    from penstock.spark._register import open_event, register, to_stream
    from penstock.spark._session import local_session
    from penstock.spark._watermark import with_writer_watermark

__all__ = [
    "Progress",
    "aggregate",
    "archive",
    "forward_watermark",
    "local_session",
    "open_event",
    "register",
    "to_stream",
    "windows",
    "with_writer_watermark",
]

_MODULES: Final = {
    "Progress": "_progress",
    "aggregate": "_jobs",
    "archive": "_jobs",
    "forward_watermark": "_progress",
    "local_session": "_session",
    "open_event": "_register",
    "register": "_register",
    "to_stream": "_register",
    "windows": "_jobs",
    "with_writer_watermark": "_watermark",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found
