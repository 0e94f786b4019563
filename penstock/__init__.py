"""Penstock: a stream store for Python and Spark.

>>> import penstock
>>> with penstock.connect("memory:") as store:
...     info = store.create_stream("plant/readings")
...     with store.writer("plant/readings") as writer:
...         ack = writer.write_event(b"21.5 C", key="sensor-7")
...     store.fetch_event(ack.result())
b'21.5 C'
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock._version import __version__
from penstock.model import (
    ByConsumption,
    ByDataRate,
    ByEventRate,
    BySize,
    ByTime,
    Checkpoint,
    EventPointer,
    Fixed,
    Lag,
    NextCut,
    Position,
    SegmentInfo,
    SegmentRange,
    StreamConfig,
    StreamCut,
    StreamInfo,
    TimeWindow,
    Watermark,
    check_kind,
    is_folder,
)

if TYPE_CHECKING:
    import os
    import socket
    from collections.abc import Mapping

    from penstock.server import FlightService
    from penstock.store import OpenTransaction, ReaderGroup, Store, Transaction, TransactionalWriter
    from penstock.stream import (
        Ack,
        BatchAck,
        DoneAck,
        Engine,
        EventInputStream,
        EventOutputStream,
        EventPointers,
        EventRead,
        Reader,
        StreamWriter,
    )

__all__ = [
    "Ack",
    "BatchAck",
    "ByConsumption",
    "ByDataRate",
    "ByEventRate",
    "BySize",
    "ByTime",
    "Checkpoint",
    "DoneAck",
    "EventInputStream",
    "EventOutputStream",
    "EventPointer",
    "EventPointers",
    "EventRead",
    "Fixed",
    "Lag",
    "NextCut",
    "OpenTransaction",
    "Position",
    "Reader",
    "ReaderGroup",
    "SegmentInfo",
    "SegmentRange",
    "Store",
    "StreamConfig",
    "StreamCut",
    "StreamInfo",
    "StreamWriter",
    "TimeWindow",
    "Transaction",
    "TransactionalWriter",
    "Watermark",
    "__version__",
    "connect",
]

_OF_STORE: Final = ("OpenTransaction", "ReaderGroup", "Store", "Transaction", "TransactionalWriter")
_MAINTENANCE_INTERVAL_S: Final = 1.0


def connect(
    address: str | os.PathLike[str],
    *,
    exclusive: bool = False,
    own: bool = True,
    maintenance_interval_s: float = _MAINTENANCE_INTERVAL_S,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls: bool | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    plogs: str | None = None,
    plogs_options: Mapping[str, str] | None = None,
) -> Store:
    """Open a store: in a folder, which is made if it is not there, on a server, or in memory, at ``memory:``.

    The process that opens a folder first owns it, and serves it to the others; when it ends, one of them takes over by
    itself. With ``exclusive`` no other process is served, and ``StoreLocked`` names the owner if there is one already.
    A process that may be killed at any time passes ``own=False``: then it never becomes the owner of a folder, but
    starts an owner process if there is none, which ends when no client needs it. Every ``maintenance_interval_s``
    seconds the owner scales streams, truncates them and writes watermarks.

    A server is at ``penstock://host:port``. It authenticates ``user`` and ``password``, or a ``token``. The connection
    uses TLS, except on this machine, unless ``tls`` says otherwise; ``tls_ca`` is the certificate to trust. Of several
    servers, ``penstock://a:7367,b:7367``, one owns the store and the others stand by: the client finds the owner, also
    after another server has taken over. If its plogs are in a bucket, ``plogs`` is the address of that, such as
    ``s3://bucket/prefix``: then this process reads events there, with its own credentials, which are in the environment
    or in ``plogs_options``, and the server sends none.

    An argument that has no meaning for the kind of address, such as ``user`` for a folder, is a ``BadArgument``; only
    ``own=False`` is accepted for a server, too, which this process never owns.
    """
    check_kind("exclusive", exclusive, bool)
    check_kind("own", own, bool)
    login = {"user": user, "password": password, "token": token, "tls": tls, "tls_ca": tls_ca}
    for_server = {**login, "plogs": plogs, "plogs_options": plogs_options}
    if isinstance(address, str) and address.startswith("penstock://"):
        _refuse(
            "a server",
            {
                "exclusive": exclusive or None,
                "maintenance_interval_s": None
                if maintenance_interval_s == _MAINTENANCE_INTERVAL_S
                else maintenance_interval_s,
            },
        )
        from penstock.client import RemoteStore, find_server, open_objects  # noqa: PLC0415

        finder = find_server(address, user=user, password=password, token=token, tls=tls, tls_ca=tls_ca)
        return RemoteStore(finder, objects=open_objects(plogs, plogs_options))
    if address == "memory:":
        _refuse("a store in memory", {"exclusive": exclusive or None, "own": None if own else own, **for_server})
    if not is_folder(address):
        from penstock.embedded import open_store  # noqa: PLC0415 - importing penstock stays quick, as below

        return open_store(address, maintenance_interval_s=maintenance_interval_s)
    _refuse("a folder", for_server)
    from penstock.errors import BadArgument  # noqa: PLC0415
    from penstock.local import open_owned, open_shared  # noqa: PLC0415

    _check_folder(address)
    folder = Path(address).absolute()
    if exclusive and not own:
        raise BadArgument("exclusive means that this process owns the folder: leave out own=False")
    if exclusive:
        return open_owned(folder, maintenance_interval_s=maintenance_interval_s, serve=serve_folder, exclusive=True)
    return open_shared(folder, maintenance_interval_s=maintenance_interval_s, own=own, serve=serve_folder)


def serve_folder(store: Engine, location: str, block_listener: socket.socket) -> FlightService:
    """Start the Flight service of a store for other processes of this machine; most owners never need it."""
    from penstock.server import FlightService  # noqa: PLC0415

    return FlightService(store, location, block_listener)


def _check_folder(address: str | os.PathLike[str]) -> None:
    """Refuse a file, and what is meant as another kind of address and would become the name of a new folder."""
    from penstock.errors import BadArgument  # noqa: PLC0415
    from penstock.ports import check_no_file  # noqa: PLC0415

    if str(address) == ":memory:":
        raise BadArgument("invalid address ':memory:': use 'memory:' for a store in memory, or name a folder")
    path = Path(address)
    check_no_file(path)
    if str(address).startswith("file:"):
        raise BadArgument(f"invalid address {str(address)!r}: use the path of a folder, or penstock://host:port")
    if re.fullmatch(r"[\w.-]+:\d{1,5}", str(address)) and not path.exists():
        raise BadArgument(
            f"invalid address {str(address)!r}: use 'penstock://{address}' for a server, or name a folder"
        )


def _refuse(kind: str, given: Mapping[str, object]) -> None:
    """Refuse arguments that have no meaning for a kind of address; the value may be a secret, and is not shown."""
    from penstock.errors import BadArgument  # noqa: PLC0415

    for name, value in given.items():
        if value is not None:
            raise BadArgument(f"{name} has no meaning for {kind}: leave it out")


if not TYPE_CHECKING:  # or a name that is not there would be fine for type checkers

    def __getattr__(name: str) -> object:
        """Import the classes of stores, writers and readers at first use: importing penstock stays quick."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from penstock import store, stream  # noqa: PLC0415

        found = globals()[name] = getattr(store if name in _OF_STORE else stream, name)
        return found
