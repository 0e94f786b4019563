"""Write two minutes of readings for the pipeline, and promise that there are no more; run again, the next two."""

import json
import os

import penstock

FIRST = 1_793_520_000_000  # 2026-11-01 08:00:00 UTC

with penstock.connect(os.environ.get("PENSTOCK_STORE", "data"), maintenance_interval_s=0.1) as store:
    store.create_stream("plant/readings", segments=2, exist_ok=True)
    BEGIN = mark.lower if (mark := store.watermark("plant/readings")) else FIRST
    with store.writer("plant/readings", "north") as writer:
        for second in range(120):
            reading = {"plant": "north", "at": BEGIN + 1000 * second, "degrees": 20 + second / 60}
            writer.write_event(json.dumps(reading).encode(), key="north")
        writer.note_time(BEGIN + 120_000)
        while (mark := store.watermark("plant/readings")) is None or mark.lower < BEGIN + 120_000:
            store.maintain()
