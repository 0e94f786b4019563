"""Penstock in Spark: streams as sources and sinks, with the writers' own watermarks.

>>> from penstock.spark import register
>>> register(spark)  # a SparkSession
>>> plant = spark.readStream.format("penstock").option("store", "./data").option("stream", "plant/readings")
>>> plant.load().isStreaming
True
"""

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
