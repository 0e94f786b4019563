"""Send letters: one that fails is tried again, one that keeps failing is set aside, and none is lost."""

from pathlib import Path

import penstock
from penstock.patterns import WorkQueue

STREAM = "office/letters"
LETTERS = 60


def send(job):
    """Send a letter; every tenth has an address that does not exist, and others fail at first."""
    number = int(job.event)
    if number % 10 == 0:
        raise ValueError(f"no such address: {number}")
    if number % 7 == 0 and not job.headers:
        raise ConnectionError("the mail server is busy")
    with Path("sent.txt").open("a") as file:
        file.write(f"{number}\n")


with penstock.connect("./data") as store:
    store.create_stream(STREAM, exist_ok=True)
    with store.writer(STREAM, writer_id="office") as writer:
        for number in range(LETTERS):
            writer.write_event(b"%d" % number, number=number)
    queue = WorkQueue(store, STREAM, group="mail", attempts=3, retry_delay_s=0.05)
    with queue.worker("worker-1") as worker:
        while outcome := worker.step(send, timeout=0.2):
            print(outcome, flush=True)
    for batch in store.read(queue.dead_letters):
        for event, headers in zip(batch["event"].to_pylist(), batch["headers"].to_pylist(), strict=True):
            print("set aside", int(event), dict(headers)["penstock-error"].decode())
print("end")
