"""Penstock: a stream store for Python and Spark."""

from penstock._version import __version__

__all__ = ["__version__"]
