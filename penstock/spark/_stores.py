"""Stores in Spark's Python processes: each is opened once per process, however many tasks it runs."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

import penstock
from penstock.errors import PenstockError, StoreUnreachable
from penstock.retry import Retry

if TYPE_CHECKING:
    from penstock import Store
    from penstock.spark._options import Address

__all__ = ["PATIENCE_S", "open_at", "shared"]

PATIENCE_S: Final = 30.0
_WORKER: Final = "pyspark.daemon"  # the program that Spark's Python processes run
_OPEN_MAX: Final = 8
_open: Final[OrderedDict[Address, Store]] = OrderedDict()  # least recently used first
_lock: Final = threading.Lock()
_modules_exempt = 0


def open_at(address: Address, *, own: bool = True, reads_bucket: bool = False, patience_s: float = 0.0) -> Store:
    """Open a store, which the caller closes; a misspelled folder does not create one.

    Tasks read the bucket, if the address names one; the planner reads no events. Wait up to ``patience_s`` for a server
    that was there when the query started.
    """
    retry = Retry(attempts_max=math.inf, until=time.monotonic() + patience_s)
    while True:
        try:
            return _open_now(address, own=own, reads_bucket=reads_bucket)
        except StoreUnreachable as error:
            if "://" not in address.store:
                raise
            retry.after(error)


def _open_now(address: Address, *, own: bool, reads_bucket: bool) -> Store:
    if "://" not in address.store and not os.path.isdir(address.store):
        raise StoreUnreachable(address.store, reason="no such folder on this machine")
    store = penstock.connect(
        address.store,
        own=own,
        user=address.user,
        password=address.password,
        token=address.token,
        tls_ca=address.tls_ca,
        plogs=address.plogs if reads_bucket else None,
        plogs_options=dict(address.plogs_secrets) if reads_bucket and address.plogs_secrets else None,
    )
    _exempt_modules_from_collection()
    return store


def _exempt_modules_from_collection() -> None:
    """Take what this process of Spark's has imported out of the garbage collector's sight, once it has imported more.

    Spark collects garbage after each task, plan and commit. Modules are all that it would pass over, which took 10 to
    20 ms each time, a fifth of what a task of the sink costs. Some come after the first task: Spark imports pandas when
    it returns a result.
    """
    global _modules_exempt  # noqa: PLW0603 - it belongs to the process
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _WORKER and len(sys.modules) > _modules_exempt:
        gc.freeze()
        _modules_exempt = len(sys.modules)


def shared(address: Address) -> Store:
    """Return this process's store at an address; it stays open for later tasks.

    A task process does not own a folder, because Spark kills it when it is idle. A task waits for the store, because
    its planner was connected to it just before.
    """
    is_task = TaskContext.get() is not None
    with _lock:
        store = _open.pop(address, None) or open_at(
            address, own=not is_task, reads_bucket=True, patience_s=PATIENCE_S if is_task else 0
        )
        _open[address] = store
        _exempt_modules_from_collection()
        if len(_open) > _OPEN_MAX:
            _, oldest = _open.popitem(last=False)
            with suppress(PenstockError):  # its user got the error
                oldest.close()
        return store
