"""A web service on a stream: POST an event, and follow the stream as server-sent events.

Run it with ``uvicorn service:app``. The store is in ./data; PENSTOCK_STORE names another folder, or a server.
"""

import os
from contextlib import asynccontextmanager
from uuid import uuid4

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from penstock import EventPointer, StreamCut, aio
from penstock.errors import BadArgument, PenstockError, StreamError

STREAM = "plant/readings"
EVENT_SIZE_MAX = 1 << 20
SILENCE_S = 15.0  # after which a comment is sent, so that proxies leave the connection open


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
    except PenstockError as error:
        raise HTTPException(404, str(error)) from error
    return StreamingResponse(file, media_type="application/octet-stream")


@app.get("/events")
async def follow(request: Request, after: str | None = None):
    """Send all events, and those to come, as server-sent events.

    The id of each is its position. A browser that reconnects sends the last one, and goes on behind it.
    """
    last = request.headers.get("last-event-id") or after
    try:
        start = None if last is None else StreamCut.parse(last)
        group = await app.state.store.create_reader_group(f"follow-{uuid4().hex}", [STREAM], start=start)
    except (BadArgument, StreamError) as error:
        raise HTTPException(400, f"cannot continue after {last!r}: {error}") from error
    return StreamingResponse(sent(group), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def sent(group):
    """Yield the text of each event; when the client goes away, this is cancelled, and the group is deleted."""
    try:
        async with group.reader("r") as reader:
            yield ": welcome\n\n"
            while True:
                read = await reader.read_next_event(timeout=SILENCE_S)
                if read is None:
                    yield ": still here\n\n"
                elif read.checkpoint is None:
                    lines = read.event.decode(errors="replace").splitlines() or [""]
                    yield f"id: {read.position}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
    finally:
        await group.delete()
