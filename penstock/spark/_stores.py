"""Stores in Spark's Python processes: opened once in each, however many tasks it runs."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

import penstock
from penstock.errors import PenstockError, StoreUnreachable

if TYPE_CHECKING:
    from penstock import Store
    from penstock.spark._options import Address

__all__ = ["PATIENCE_S", "open_at", "shared"]

PATIENCE_S: Final = 30.0
_RETRY_S: Final = 0.1
_OPEN_MAX: Final = 8
_open: Final[OrderedDict[Address, Store]] = OrderedDict()  # the last used last
_lock: Final = threading.Lock()


def open_at(address: Address, *, own: bool = True, patience_s: float = 0.0) -> Store:
    """Open a store; the caller closes it. Nobody makes one by misspelling its folder.

    A server that was there when the query began, and is not now, may be back within ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return _open_now(address, own=own)
        except StoreUnreachable:
            if "://" not in address.store or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_S)


def _open_now(address: Address, *, own: bool) -> Store:
    if "://" not in address.store and not os.path.isdir(address.store):
        raise StoreUnreachable(address.store, reason="there is no such folder on this machine")
    return penstock.connect(
        address.store,
        own=own,
        user=address.user,
        password=address.password,
        token=address.token,
        tls_ca=address.tls_ca,
    )


def shared(address: Address) -> Store:
    """Return the store of this process at an address; it stays open for the tasks that come.

    A process of tasks does not own a folder: Spark kills it when it is idle. A task is patient: who planned it was with
    the store just before.
    """
    is_task = TaskContext.get() is not None
    with _lock:
        store = _open.pop(address, None) or open_at(address, own=not is_task, patience_s=PATIENCE_S if is_task else 0)
        _open[address] = store
        if len(_open) > _OPEN_MAX:
            _, oldest = _open.popitem(last=False)
            with suppress(PenstockError):  # whoever used it was told
                oldest.close()
        return store
