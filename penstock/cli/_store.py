"""What all commands that work on a store share: the option that names it, how it is opened, places in a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli._output import fail
from penstock.cli._values import is_time, parse_append_time
from penstock.errors import BadArgument
from penstock.model import shown

if TYPE_CHECKING:
    from penstock import Store
    from penstock.model import StreamCut

__all__ = ["STORE_DEFAULT", "StoreOption", "existing_store", "job_options", "new_store", "parse_place"]

STORE_DEFAULT: Final = "./penstock-data"

StoreOption = Annotated[
    str,
    typer.Option(
        "--store", envvar="PENSTOCK_STORE", metavar="STORE", help="The folder of the store, or penstock://host:port."
    ),
]


def existing_store(address: str) -> Store:
    """Open a store that is there; who only wants to look does not make one."""
    if _is_folder(address) and not _has_store(address):
        fail(f"there is no store in {address}: name one with --store, or make one with penstock stream create")
    return new_store(address)


def _is_folder(address: str) -> bool:
    return "://" not in address and address not in ("", "memory:")


def _has_store(folder: str) -> bool:
    return any(Path(folder, name).exists() for name in ("plogs", "cpo.db"))


def new_store(address: str) -> Store:
    """Open a store, which is made if it is not there.

    A command does not own a folder that others may use: they would stop with it, as by Ctrl-Z.
    """
    import penstock

    if address == "memory:":
        raise BadArgument("a store in memory would be gone with this command: name a folder")
    if address.startswith("penstock://"):
        from penstock.cli._credentials import credentials, in_options

        with in_options():
            return penstock.connect(address, **credentials())
    return penstock.connect(address, own=_is_folder(address) and not _has_store(address))


def job_options(address: str) -> dict[str, str]:
    """Return what Spark is told besides the address of a store: who asks."""
    if not address.startswith("penstock://"):
        return {}
    from penstock.cli._credentials import credentials

    found = credentials()
    if "tls" in found:
        raise BadArgument("--tls and --no-tls are not known to jobs on Spark: give --tls-ca")
    return {name: str(value) for name, value in found.items()}


def parse_place(store: Store, stream: str, option: str, text: str) -> StreamCut:
    """Return the cut that an option means: ``head``, ``tail``, a cut as text, or a time.

    Behind the cut of a time lies what was appended at that time or later.
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
        wanted = "head, tail, a cut like plant/readings:0@64, or a time like 2026-11-15T12:00"
        raise BadArgument(f"{option} cannot be {shown(text)}: give {wanted}") from None
