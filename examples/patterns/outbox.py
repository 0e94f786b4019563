"""Place orders in a database: each commits together with its event, which is then in the stream exactly once."""

import sqlalchemy as sa

import penstock
from penstock.events.outbox import OutboxRelay, add_xfer_event, create_outbox

STREAM = "shop/placed"

engine = sa.create_engine("sqlite:///shop.db")
orders = sa.Table("orders", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))

with engine.begin() as connection:
    create_outbox(connection)
    orders.create(connection, checkfirst=True)
with penstock.connect("./data") as store:
    store.create_stream(STREAM, exist_ok=True)
    with OutboxRelay(engine, store, STREAM) as relay:
        for _ in range(40):
            with engine.begin() as connection:  # the order and its event, or neither
                number = connection.execute(sa.select(sa.func.count()).select_from(orders)).scalar_one()
                connection.execute(sa.insert(orders).values(number=number))
                add_xfer_event(connection, "ORDER", {"number": number})
            print(f"order {number}", flush=True)
            relay.move()  # usually a process of its own: penstock event relay
print("end")
