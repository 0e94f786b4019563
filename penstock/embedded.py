"""The embedded store: a folder, or memory, in this process."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cpo import open_cpo
from penstock.errors import BadArgument, CasConflict, StorageUnusable, StoreLocked
from penstock.log import MetadataManager
from penstock.model import PLOGS_FOLDER, check_positive
from penstock.plog import open_plogs
from penstock.ports import opened
from penstock.stream import MAINTENANCE_INTERVAL_S, Engine

if TYPE_CHECKING:
    from penstock.cpo import Cpo
    from penstock.log import PlogSizes
    from penstock.ports import Clock

__all__ = ["PARTITION", "open_store", "open_store_at"]

PARTITION: Final = "main"
"""The name of the only partition of a store."""
_STORE_ID: Final = f"store/{PARTITION}"  # a key of the oracle
_STORE_ID_SIZE: Final = 16


def open_store(
    address: str | PathLike[str],
    *,
    clock: Clock | None = None,
    sizes: PlogSizes | None = None,
    maintenance_interval_s: float = MAINTENANCE_INTERVAL_S,
) -> Engine:
    """Open the store in a folder, which is made if it is not there, or one in memory, at ``memory:``.

    Every ``maintenance_interval_s`` seconds it scales streams, truncates them, and writes watermarks.
    """
    plogs, cpo = _urls(address)
    try:
        return open_store_at(
            plogs,
            cpo,
            address=str(address),
            clock=clock,
            sizes=sizes,
            maintenance_interval_s=maintenance_interval_s,
        )
    except StoreLocked as error:
        raise StoreLocked(str(address), owner=error.owner) from None


def open_store_at(
    plogs: str,
    cpo: str,
    *,
    address: str,
    clock: Clock | None = None,
    sizes: PlogSizes | None = None,
    maintenance_interval_s: float = MAINTENANCE_INTERVAL_S,
) -> Engine:
    """Open the store whose plogs and control plane oracle are at these URLs; ``address`` is its name in messages.

    This takes it over from a process that still has it open: see :mod:`penstock.log`.
    """
    check_positive("maintenance_interval_s", maintenance_interval_s)

    def open_all() -> Engine:
        with ExitStack() as resources:
            if plogs.startswith(("s3://", "az://")):
                oracle = resources.enter_context(open_cpo(cpo))
                _check_same_store(plogs, oracle)
                opened_plogs = resources.enter_context(open_plogs(plogs, cpo=oracle))
            elif plogs.startswith("cluster:"):
                oracle = resources.enter_context(open_cpo(cpo))
                opened_plogs = resources.enter_context(open_plogs(plogs, cpo=oracle))
            else:  # opening plogs makes the folder, whose lock keeps others away
                opened_plogs = resources.enter_context(open_plogs(plogs))
                oracle = resources.enter_context(open_cpo(cpo))
            manager = resources.enter_context(MetadataManager.open(opened_plogs, oracle, PARTITION, sizes=sizes))
            return Engine(
                manager,
                address=address,
                clock=clock,
                maintenance_interval_s=maintenance_interval_s,
                resources=resources,
            )

    return opened(open_all, Engine.close)


def _check_same_store(plogs: str, oracle: Cpo) -> None:
    """Refuse a bucket with another store than the oracle's before it is opened: that would fence its owner.

    The oracle knows the id of its store from before there is anything in the bucket.
    """
    from penstock.plog.objects import identify_store  # noqa: PLC0415 - most processes never need it

    known = oracle.get(_STORE_ID)
    if known is None:
        with suppress(CasConflict):  # another process was faster
            oracle.cas(_STORE_ID, secrets.token_bytes(_STORE_ID_SIZE), expected=0)
        known = oracle.get(_STORE_ID)
    if known is None or identify_store(plogs, known.value) != known.value.hex():
        reason = (
            f"its store is not that of the control plane oracle {oracle.where()}: "
            "one of the two addresses is wrong, or the oracle was lost"
        )
        raise StorageUnusable(plogs.partition("?")[0], reason=reason)


def _urls(address: object) -> tuple[str, str]:
    """Return where a store keeps its plogs and its oracle."""
    if not isinstance(address, str | PathLike) or not str(address):
        raise BadArgument(f"invalid address of a store {address!r}: name a folder, or use memory:")
    if str(address).startswith(("s3://", "az://")):
        raise BadArgument(
            f"cannot connect to {address}: a bucket is opened by its servers; name one, penstock://host:port"
        )
    if "://" in str(address):
        raise BadArgument(f"cannot connect to {address}: name a folder, penstock://host:port, or use memory:")
    if address == "memory:":
        return "memory:", "memory:"
    folder = Path(address)
    return f"file:{folder / PLOGS_FOLDER}", f"sqlite:{folder / 'cpo.db'}"
