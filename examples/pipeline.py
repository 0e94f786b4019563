"""Two plants write out of order, Spark counts by windows of their own time and loses nothing; then all is archived."""

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.spark import archive, register, with_writer_watermark

STREAM, BEGIN = "plant/readings", 1_793_520_000_000  # 2026-11-01 08:00:00 UTC
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
spark = SparkSession.builder.config(map=SETTINGS).getOrCreate()
register(spark)

with penstock.connect("./pipeline-data", maintenance_interval_s=0.1) as store:
    store.create_stream(STREAM, segments=2, exist_ok=True)
    BEGIN = mark.lower if (mark := store.watermark(STREAM)) else BEGIN  # run again, it goes on where it was
    north, south = (store.writer(STREAM, name) for name in ("north", "south"))

    def write(writer, seconds, all_before):
        for second in seconds:
            writer.write_event(json.dumps({"at": BEGIN + 1000 * second}).encode(), key=writer.writer_id)
        writer.note_time(BEGIN + 1000 * all_before)  # the promise: what comes is later

    source = spark.readStream.format("penstock").option("store", "./pipeline-data").option("stream", STREAM)
    readings = source.options(format="json", json_schema="at bigint", start=str(store.tail(STREAM))).load()
    timed = with_writer_watermark(readings, "time", F.timestamp_millis("at"))
    counts = timed.groupBy(F.window("time", "30 seconds")).agg(F.count("*").alias("readings"))
    query = counts.writeStream.format("memory").queryName("counts").outputMode("append").start()
    write(north, range(90), all_before=90)  # punctual
    write(south, range(89, 60, -1), all_before=0)  # the line was down: first comes what is new, last first
    query.processAllAvailable()
    write(south, range(61), all_before=90)  # what was held back; for Spark's own watermark it is a minute late
    while (mark := store.watermark(STREAM)) is None or mark.lower < BEGIN + 90_000:
        store.maintain()
    query.processAllAvailable()
    query.stop()
    spark.table("counts").select("window.start", "readings").orderBy("start").show()  # 60 in each window: none is lost
    print(archive(spark, "./pipeline-data", STREAM, "./pipeline-archive").rows, "events archived")
