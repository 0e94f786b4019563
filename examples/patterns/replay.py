"""Count the alarms since a time again, into a file that is replaced as a whole."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import penstock

STREAM = "plant/alarms"

with penstock.connect("./data") as store:
    store.create_stream(STREAM, exist_ok=True)
    with store.writer(STREAM, writer_id="plant") as writer:
        for number in range(200):
            writer.write_event(b"%d" % number, key=f"valve-{number % 4}", number=number)
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    counts = pa.table({"key": pa.array([], pa.binary()), "key_count": pa.array([], pa.int64())})
    for batch in store.read(STREAM, start=an_hour_ago):  # the end is fixed now: the next run has the rest
        counts = pa.concat_tables([counts, pa.table(batch).group_by("key").aggregate([("key", "count")])])
        print(f"{len(batch)} alarms", flush=True)
result = counts.group_by("key").aggregate([("key_count", "sum")]).sort_by("key").to_pylist()
Path("alarms.new").write_text("".join(f"{row['key'].decode()} {row['key_count_sum']}\n" for row in result))
os.replace("alarms.new", "alarms.txt")  # a reader of the file sees the old counts or the new ones
print("end", flush=True)
