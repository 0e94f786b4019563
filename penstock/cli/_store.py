"""What all commands that work on a store share: the option that names it, opening it, positions in a stream."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli._output import fail
from penstock.cli._values import is_time, parse_append_time
from penstock.errors import BadArgument
from penstock.model import is_folder, shown
from penstock.ports import check_no_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store
    from penstock.model import StreamCut

__all__ = ["STORE_DEFAULT", "StoreOption", "existing_store", "job_options", "new_store", "parse_place"]

STORE_DEFAULT: Final = "./penstock-data"
_SEARCH_S: Final = 1.0

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="PENSTOCK_STORE",
        metavar="STORE",
        help="The folder of the store, or penstock://host:port[,host:port].",
    ),
]


def existing_store(address: str, *, named_by: str = "--store") -> Store:
    """Open an existing store; a command that only reads does not create one."""
    if is_folder(address) and not _has_store(address):
        check_no_file(address)
        if address.startswith("penstock:"):
            fail(f"invalid address {address}: use penstock://host:port")
        fail(f"no store in {address}: name one with {named_by}, or create one with penstock stream create")
    return new_store(address)


def _has_store(folder: str) -> bool:
    return any(Path(folder, name).exists() for name in ("plogs", "cpo.db"))


def new_store(address: str) -> Store:
    """Open a store; create it if it does not exist.

    A command does not own a folder that other processes may use: Ctrl-Z on the command would stop them, too.
    """
    import penstock

    if address == "memory:":
        raise BadArgument("a store in memory would end with this command: name a folder")
    if address.startswith("penstock://"):
        from penstock.cli._credentials import credentials, in_options

        with in_options(), _noticed_search(address):
            return penstock.connect(address, **credentials())
    return penstock.connect(address, own=is_folder(address) and not _has_store(address))


@contextmanager
def _noticed_search(address: str) -> Iterator[None]:
    """Say that the owner is looked for among several servers, if that takes long."""
    servers = address.removeprefix("penstock://").split(",")
    if len(servers) == 1:
        yield
        return
    text = f"penstock: looking for the owner of the store among {', '.join(servers)} ..."
    notice = threading.Timer(_SEARCH_S, typer.echo, (text,), {"err": True})
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def job_options(address: str) -> dict[str, str]:
    """Return the credentials for a store, as options of the Spark source."""
    if not address.startswith("penstock://"):
        return {}
    from penstock.cli._credentials import credentials

    options = credentials()
    if "tls" in options:
        raise BadArgument("jobs on Spark do not support --tls and --no-tls: use --tls-ca")
    return {name: str(value) for name, value in options.items()}


def parse_place(store: Store, stream: str, option: str, text: str) -> StreamCut:
    """Return the cut that an option means: ``head``, ``tail``, a cut as text, or a time.

    The cut of a time lies before the events that were appended at that time or later.
    """
    from penstock.model import StreamCut

    if text == "head":
        return store.head(stream)
    if text == "tail":
        return store.tail(stream)
    if is_time(text):
        return store.cut_at_time(stream, parse_append_time(option, text), by="append")
    try:
        return StreamCut.parse(text)
    except BadArgument:
        wanted = "head, tail, a cut like plant/readings:0@64, a time like 2026-11-15T12:00, or an age like 10m"
        raise BadArgument(f"invalid {option} {shown(text)}: use {wanted}") from None
