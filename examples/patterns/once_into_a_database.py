"""Sum the readings of each sensor in a database: every reading counts once, whatever is killed."""

import sqlalchemy as sa

import penstock
from penstock.patterns import SqlConsumer

STREAM = "plant/readings"

engine = sa.create_engine("sqlite:///totals.db")
totals = sa.Table(
    "totals", sa.MetaData(), sa.Column("sensor", sa.String(40), primary_key=True), sa.Column("total", sa.Integer)
)


def add_to_totals(connection, batch):
    """Add the readings of a batch; this runs in the transaction that moves the position, too."""
    for sensor, reading in zip(batch["key"].to_pylist(), batch["event"].to_pylist(), strict=True):
        row = totals.c.sensor == sensor.decode()
        if not connection.execute(sa.update(totals).where(row).values(total=totals.c.total + int(reading))).rowcount:
            connection.execute(sa.insert(totals).values(sensor=sensor.decode(), total=int(reading)))


with penstock.connect("./data") as store:
    store.create_stream(STREAM, exist_ok=True)
    with store.writer(STREAM, writer_id="sensors") as writer:
        for number in range(300):  # run again, these are the same readings, which the stream takes once
            writer.write_event(b"%d" % number, key=f"sensor-{number % 3}", number=number)
    totals.create(engine, checkfirst=True)
    consumer = SqlConsumer(engine, store, STREAM, name="totals", max_bytes=256)
    while count := consumer.step(add_to_totals):
        print(f"{count} readings", flush=True)
with engine.connect() as connection:
    print("totals", dict(connection.execute(sa.select(totals)).all()))
