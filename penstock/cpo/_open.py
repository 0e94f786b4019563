"""Opening an oracle by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from penstock.cpo._cpo import Cpo
    from penstock.ports import Clock

_KNOWN: Final = "'sqlite:PATH' (a file, created if there is none) or 'memory:' (gone when closed)"


def open_cpo(url: str, *, clock: Clock | None = None) -> Cpo:
    """Open the oracle at ``url``, and check all of it.

    ``sqlite:PATH`` is a file that any number of processes on this machine may share; ``memory:`` is for tests.
    Raises ``CpoUnavailable`` if it cannot be opened, ``CpoCorrupt`` if it is damaged, ``FormatUnknown`` if a
    newer Penstock wrote it.
    """
    path = _path(url)
    # SQLAlchemy is slow to import, and a module that only uses Cpo as a type does not need it.
    from penstock.cpo._sql import SqlCpo  # noqa: PLC0415
    from penstock.cpo._sqlite import SqliteDatabase  # noqa: PLC0415

    return SqlCpo(SqliteDatabase(url, path), clock or SystemClock())


def _path(url: str) -> str | None:
    """Return the file that ``url`` names, None for memory. A message never repeats a URL: it may hold a password."""
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        return None
    if scheme.startswith("postgresql"):
        raise BadArgument(f"PostgreSQL is not in this release yet: use {_KNOWN}")
    if scheme != "sqlite":
        raise BadArgument(f"invalid address {scheme[:50]!r} of a control plane oracle: use {_KNOWN}")
    if not rest or rest.startswith(("//", ":")) or "\0" in rest:
        raise BadArgument(
            "invalid oracle address: use 'sqlite:' and a path, as in 'sqlite:./cpo.db' or 'sqlite:/var/cpo.db'"
        )
    return rest
