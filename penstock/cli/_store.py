"""What all commands that work on a store share: the option that names it, how it is opened, places in a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli._output import fail
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.client import Store
    from penstock.model import StreamCut

__all__ = ["STORE_DEFAULT", "StoreOption", "existing_store", "job_address", "new_store", "parse_place"]

STORE_DEFAULT: Final = "./penstock-data"

StoreOption = Annotated[
    str,
    typer.Option(
        "--store", envvar="PENSTOCK_STORE", metavar="STORE", help="The folder of the store, or penstock://host:port."
    ),
]


def existing_store(address: str) -> Store:
    """Open a store that is there; who only wants to look does not make one."""
    is_folder = "://" not in address and address not in ("", "memory:")
    if is_folder and not any(Path(address, name).exists() for name in ("plogs", "cpo.db")):
        fail(f"there is no store in {address}: name one with --store, or make one with penstock stream create")
    return new_store(address)


def new_store(address: str) -> Store:
    """Open a store, which is made if it is not there."""
    import penstock

    if address == "memory:":
        raise BadArgument("a store in memory would be gone with this command: name a folder")
    if address.startswith("penstock://"):
        from penstock.cli._credentials import credentials

        return penstock.connect(address, **credentials())
    return penstock.connect(address)


def job_address(address: str) -> tuple[str, dict[str, str]]:
    """Return the address of a store that is there, for Spark, and who asks."""
    with existing_store(address):
        pass
    if not address.startswith("penstock://"):
        return address, {}
    from penstock.cli._credentials import credentials

    return address, {name: str(value) for name, value in credentials().items()}


def parse_place(store: Store, stream: str, text: str) -> StreamCut:
    """Return the cut that a user means: ``head``, ``tail`` or a cut as text."""
    from penstock.model import StreamCut

    if text == "head":
        return store.head(stream)
    if text == "tail":
        return store.tail(stream)
    return StreamCut.parse(text)
