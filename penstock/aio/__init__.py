"""Penstock for asyncio: the same stores, streams, writers and readers, whose methods are awaited.

>>> import asyncio
>>> from penstock import aio
>>> async def main():
...     async with aio.connect("memory:") as store:
...         await store.create_stream("plant/readings")
...         async with store.writer("plant/readings") as writer:
...             ack = await writer.write_event(b"21.5 C", key="sensor-7")
...             return await store.fetch_event(await ack)
>>> asyncio.run(main())
b'21.5 C'

Single events are written and read in the event loop itself; what waits for the disk or a server runs in threads of the
store, one call for many events. No thread waits where there is nothing to read.
"""

from penstock.aio._acks import AsyncAck
from penstock.aio._batches import AsyncBatches
from penstock.aio._event_files import AsyncEventInputStream, AsyncEventOutputStream
from penstock.aio._group import AsyncReaderGroup
from penstock.aio._reader import AsyncReader
from penstock.aio._store import AsyncStore, connect
from penstock.aio._transaction import AsyncOpenTransaction, AsyncTransaction, AsyncTransactionalWriter
from penstock.aio._writer import AsyncStreamWriter

__all__ = [
    "AsyncAck",
    "AsyncBatches",
    "AsyncEventInputStream",
    "AsyncEventOutputStream",
    "AsyncOpenTransaction",
    "AsyncReader",
    "AsyncReaderGroup",
    "AsyncStore",
    "AsyncStreamWriter",
    "AsyncTransaction",
    "AsyncTransactionalWriter",
    "connect",
]
