"""A job from one stream to another, run as a process of its own so that it can be killed: folder, checkpoint."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from penstock.spark import register


def main(folder: str, checkpoint: str) -> None:
    """Copy all that there is, a few events at a time, through a shuffle."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(spark)
    source = spark.readStream.format("penstock").option("store", folder).option("stream", "plant/in")
    rows = source.option("max_events_per_trigger", "3000").load().selectExpr("event", "substr(event, 1, 2) AS key")
    sink = rows.repartition(2, "key").writeStream.format("penstock").option("store", folder)
    sink = sink.option("stream", "plant/out").option("key", "key").option("checkpointLocation", checkpoint)
    sink.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
