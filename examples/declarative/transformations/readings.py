"""Two tables out of one stream: every reading, and those of each half minute, once its writers say that it is over."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark import register, with_writer_watermark

spark = SparkSession.active()
register(spark)

# Outside of the functions, because it looks at the columns; by its whole path, because the server looks there.
store = os.path.abspath(os.environ.get("PENSTOCK_STORE", "data"))
source = spark.readStream.format("penstock").option("store", store).option("stream", "plant/readings")
events = source.option("format", "json").option("json_schema", "plant string, at bigint, degrees double").load()
timed = with_writer_watermark(events, "time", F.timestamp_millis("at"))


@dp.table
def readings() -> DataFrame:
    """Return every reading."""
    return timed.select("time", "plant", "degrees")


@dp.table
def half_minutes() -> DataFrame:
    """Return how warm it was, by half minutes."""
    window = F.window("time", "30 seconds")
    warm = timed.groupBy(window, "plant").agg(F.avg("degrees").alias("degrees"), F.count("*").alias("readings"))
    return warm.select("window.start", "plant", "degrees", "readings")
