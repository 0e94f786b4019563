"""A web service on a stream: POST an event, and follow the stream as server-sent events.

Run it with ``uvicorn service:app``. The store is in ./data; PENSTOCK_STORE names another folder, or a server.
"""

import asyncio
import logging
import os
import time
from contextlib import asynccontextmanager
from itertools import zip_longest

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from penstock import EventPointer, StreamCut, aio
from penstock.errors import BadArgument, PenstockError, StreamError

STREAM = "plant/readings"
EVENT_SIZE_MAX = 1 << 20
PAGE_SIZE = 1 << 16  # bytes of events that are read at a time
POLL_S = 0.1  # between two looks for new events
SILENCE_S = 15.0  # after which a comment is sent, so that proxies leave the connection open
log = logging.getLogger("uvicorn.error")


@asynccontextmanager
async def lifespan(app):
    async with aio.connect(os.environ.get("PENSTOCK_STORE", "./data")) as store:
        await store.create_stream(STREAM, exist_ok=True)
        async with store.writer(STREAM) as writer:
            app.state.store, app.state.writer = store, writer
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/events", status_code=201)
async def add_event(request: Request, key: str | None = None):
    """Write the body as one event; the answer comes when it is durable."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > EVENT_SIZE_MAX:
                raise HTTPException(413, f"an event has at most {EVENT_SIZE_MAX} bytes here")
    except ClientDisconnect:
        return None  # half an event is none, and nobody waits for the answer
    ack = await app.state.writer.write_event(body, key)
    return {"pointer": str(await ack)}


@app.get("/events/{pointer:path}")
async def get_event(pointer: str):
    """Return one event, of any size."""
    try:
        file = await app.state.store.fetch_event_as_stream(EventPointer.parse(pointer))
    except (BadArgument, StreamError) as error:
        raise HTTPException(404, str(error)) from error
    return StreamingResponse(file, media_type="application/octet-stream")


@app.exception_handler(PenstockError)
async def explain(request: Request, error: PenstockError):
    """Answer that the store cannot do it now; why, such as a path, is for the log and not for clients."""
    log.error("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse({"detail": f"the store cannot do this now ({type(error).__name__})"}, status_code=503)


@app.get("/events")
async def follow(request: Request, after: str | None = None):
    """Send all events, and those to come, as server-sent events.

    The id of each is the position behind it. A browser that reconnects sends the last one, and goes on from there.
    """
    last = request.headers.get("last-event-id") or after
    store = app.state.store
    try:
        start = await store.head(STREAM) if last is None else StreamCut.parse(last)
        await store.next_cut(STREAM, start, start)
    except (BadArgument, StreamError) as error:
        raise HTTPException(400, f"cannot continue after {last!r}: {error}") from error
    return StreamingResponse(sent(start), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def sent(start):
    """Yield the text of each event; when the client goes away, this is cancelled.

    It looks for new events by itself. A reader group would be notified, but retention by consumption waits for groups,
    and if this process is killed, nobody deletes those of its clients.
    """
    store, silent_since = app.state.store, time.monotonic()
    yield ": welcome\n\n"
    while True:
        end = (await store.next_cut(STREAM, start, max_bytes=PAGE_SIZE)).cut
        if end != start:
            rows = [row async for batch in store.read(STREAM, start, end) for row in batch.to_pylist()]
            for event, position in with_positions(rows, start, end):
                lines = event.decode(errors="replace").splitlines() or [""]
                yield f"id: {position}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
            start, silent_since = end, time.monotonic()
        elif time.monotonic() - silent_since > SILENCE_S:
            silent_since = time.monotonic()
            yield ": still here\n\n"
        else:
            await asyncio.sleep(POLL_S)


def with_positions(rows, start, end):
    """Yield the events from one cut to another, each with a cut behind which nothing is missed.

    Where segments were split or merged, only the last cut is behind that: a client may get some events again.
    """
    offsets = start.offsets
    for row, following in zip_longest(rows, rows[1:]):
        segment = row["segment_id"]
        is_last = following is None or following["segment_id"] != segment
        if segment in offsets:
            offsets[segment] = end.offsets.get(segment, row["offset"]) if is_last else following["offset"]
        event = b"(too large)" if row["event"] is None else row["event"]
        yield event, end if following is None else StreamCut.of(STREAM, offsets)
