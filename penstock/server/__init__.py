"""The server: a store, open to other processes."""

from penstock.server._config import Config, load_config
from penstock.server._run import Server, run

__all__ = ["Config", "Server", "load_config", "run"]
