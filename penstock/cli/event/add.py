"""``penstock event add``: add an event to a FutoIn event stream."""

import json
from typing import Annotated

import typer

from penstock.cli._output import JsonOption, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.event._target import EventCommand, StreamArgument, is_address
from penstock.errors import BadArgument

COMMAND = EventCommand
EXAMPLE = """penstock event add shop/orders ORDER_PAID '{"order": 17}'"""


def add(
    stream: StreamArgument,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="Its type: 1 to 16 of A-Z and _.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Its data: any JSON value.")],
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add an event, and print its id once the event is durable."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise BadArgument("invalid DATA: it is nested too deeply") from None
    except ValueError as error:
        raise BadArgument(f"invalid DATA: {error}; use JSON, a text in double quotes") from None
    if is_address(stream):
        event_id = _send(stream, kind, value)
    else:
        from penstock.events import StoreEvents

        with existing_store(store) as opened:
            event_id = StoreEvents(opened, stream).add(kind, value)
    if as_json:
        print_json({"stream": stream, "id": str(event_id)})
    else:
        typer.echo(event_id)


def _send(url: str, kind: str, data: object) -> int:
    import asyncio

    from penstock.cli._credentials import futoin_credentials, in_futoin_options
    from penstock.events import Generator

    async def call() -> int:
        async with Generator(url, **futoin_credentials()) as generator:
            return await generator.add_event(kind, data)

    with in_futoin_options():
        return asyncio.run(call())
