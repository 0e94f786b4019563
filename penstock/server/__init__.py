"""The server: a store, open to other processes.

The command line reads :class:`Config` at every start, so the rest is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from penstock.server._config import Config, load_config

if TYPE_CHECKING:
    from penstock.server._run import Server, run

__all__ = ["Config", "Server", "load_config", "run"]


def __getattr__(name: str) -> object:
    """Import the server itself."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.server import _run  # noqa: PLC0415

    return getattr(_run, name)
