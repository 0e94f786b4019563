"""Consumers that most programs need, on the public :class:`penstock.Store` alone.

``SqlConsumer`` handles each event once, in a database. ``LatestByKey`` keeps a table with the latest event of each key.
``WorkQueue`` hands events out as jobs, tries failed ones again, and sets those aside that keep failing. A name is
imported at first use, because the database toolkit takes a while to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.patterns._latest import LatestByKey
    from penstock.patterns._queue import Worker, WorkQueue
    from penstock.patterns._sql_consumer import SqlConsumer

__all__ = ["LatestByKey", "SqlConsumer", "WorkQueue", "Worker"]

_MODULES: Final = {
    "LatestByKey": "_latest",
    "SqlConsumer": "_sql_consumer",
    "WorkQueue": "_queue",
    "Worker": "_queue",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
