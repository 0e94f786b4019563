"""Penstock in Spark: streams as sources and sinks, with the writers' own watermarks.

>>> from penstock.spark import register
>>> register(spark)  # doctest: +SKIP
>>> spark.readStream.format("penstock").option("store", "./data").option("stream", "plant/readings").load()
... # doctest: +SKIP
"""

from penstock.spark._register import open_event, register
from penstock.spark._watermark import with_writer_watermark

__all__ = ["open_event", "register", "with_writer_watermark"]
