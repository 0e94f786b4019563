"""Run a little of everything on Spark once, so that Java can leave the classes in an archive; see the Makefile.

Tests start Spark dozens of times, and with the archive each start takes half as long.
"""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

with tempfile.TemporaryDirectory() as folder:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.range(10).withColumn("date", F.current_date()).write.partitionBy("date").parquet(f"{folder}/table")
    spark.read.parquet(f"{folder}/table").groupBy("date").count().toArrow()
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "0 seconds")
    writer = rows.groupBy(F.window("timestamp", "1 second")).count().writeStream.format("memory").queryName("counts")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").outputMode("append").start()
    query.processAllAvailable()
    query.stop()
    spark.stop()
