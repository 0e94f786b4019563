"""The store in this process: it puts the other packages together."""

from penstock.stream.engine._engine import Engine

__all__ = ["Engine"]
