"""Keep the latest price of each product in a table, which other programs query by SQL."""

import sqlalchemy as sa

import penstock
from penstock.patterns import LatestByKey

STREAM = "shop/prices"

engine = sa.create_engine("sqlite:///prices.db")

with penstock.connect("./data") as store:
    store.create_stream(STREAM, segments=2, exist_ok=True)
    view = LatestByKey(engine, store, STREAM, table="prices")
    with store.writer(STREAM, writer_id="shop") as writer:
        for number in range(400):
            price = b"" if number == 399 else b"%d" % number  # an empty event: the product is gone
            writer.write_event(price, key=f"product-{number % 20}", number=number)
            if number % 40 == 39:
                writer.flush()
                print(f"{view.update()} prices", flush=True)
    view.update()
with engine.connect() as connection:
    for key, price in connection.execute(sa.select(view.table.c.key, view.table.c.event).order_by("key")):
        print(key.decode(), price.decode())
print("end")
