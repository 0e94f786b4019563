"""``penstock event relay``: move events from the outbox of a database to a stream."""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._job import FollowOption
from penstock.cli._output import JsonOption, count_of, fail, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.event._target import refuse_address
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from sqlalchemy import Engine

EXAMPLE = "penstock event relay sqlite:///shop.db shop/orders"


def relay(
    database: Annotated[
        str,
        typer.Argument(
            metavar="DATABASE_URL",
            envvar="PENSTOCK_DATABASE",
            help="The database, as SQLAlchemy names it; put a password into the variable, or into PGPASSWORD.",
        ),
    ],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    *,
    table: Annotated[str, typer.Option(metavar="NAME", help="The table of the outbox.")] = "evt_outbox",
    follow: FollowOption = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Move the committed events of an outbox to a stream, exactly once and in the order of the commits.

    A relay that is started again goes on where it was; one that is started beside another replaces it.
    """
    import sqlalchemy as sa

    from penstock.events.outbox import OutboxRelay

    refuse_address(stream)
    engine = _engine(database)
    try:
        with existing_store(store) as opened, OutboxRelay(engine, opened, stream, table) as moving:
            if follow:
                with suppress(KeyboardInterrupt):
                    moving.run(threading.Event())
            else:
                while moving.move():
                    pass
    except sa.exc.SQLAlchemyError as error:
        fail(f"the database failed: {str(error).splitlines()[0]}")
    finally:
        engine.dispose()
    if as_json:
        print_json({"stream": stream, "events": moving.moved})
    else:
        typer.echo(f"{table} to {stream}: {count_of(moving.moved, 'event')} moved")


def _engine(database: str) -> "Engine":
    """Return the database; the error repeats nothing of its URL, which may contain a password."""
    import sqlalchemy as sa

    engine = None
    try:
        url = sa.make_url(database)
        if url.get_backend_name() in {"postgresql", "sqlite"} and not url.get_dialect().is_async:
            engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ValueError):
        pass
    except ModuleNotFoundError as error:
        raise BadArgument(
            f"the database driver {error.name} is not installed: install it, or use postgresql+psycopg://"
        ) from None
    if engine is None:
        raise BadArgument("invalid DATABASE_URL: use postgresql+psycopg://user@host/database or sqlite:///file")
    return engine
