"""Deliver every order to two departments: each is a reader group, with a position of its own."""

from pathlib import Path

import penstock

STREAM = "shop/orders"
DEPARTMENTS = ("billing", "shipping")

with penstock.connect("./data") as store:
    store.create_stream(STREAM, segments=2, exist_ok=True)
    groups = [store.create_reader_group(name, [STREAM], exist_ok=True) for name in DEPARTMENTS]
    with store.writer(STREAM, writer_id="shop") as writer:
        for number in range(100):
            writer.write_event(b"order %d" % number, key=f"customer-{number % 5}", number=number)
    for group in groups:
        with group.reader("reader-1") as reader, Path(f"{group.name}.txt").open("a") as file:
            while (read := reader.read_next_event(timeout=0)) is not None:
                file.write(f"{read.event.decode()}\n")
                file.flush()
                reader.commit()  # only now: a crash before this line delivers the order again
                print(group.name, flush=True)
print("end")
