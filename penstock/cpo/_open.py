"""From a URL to an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from penstock.cpo._cpo import Cpo
    from penstock.ports import Clock

_KNOWN: Final = "'sqlite:PATH' (a file, made if it is not there) and 'memory:' (gone when closed)"


def open_cpo(url: str, *, clock: Clock | None = None) -> Cpo:
    """Open the oracle at ``url``, and check every byte of it.

    ``sqlite:PATH`` is a file that any number of processes on this machine may share; ``memory:`` is one for tests.
    Raises ``CpoUnavailable`` if it cannot be opened, ``CpoCorrupt`` if it is damaged, ``FormatUnknown`` if it is
    of a newer Penstock.
    """
    path = _path(url)
    # SQLAlchemy is slow to import, and who only names a Cpo's type does not need it.
    from penstock.cpo._sql import SqlCpo  # noqa: PLC0415
    from penstock.cpo._sqlite import SqliteDatabase  # noqa: PLC0415

    return SqlCpo(SqliteDatabase(url, path), clock or SystemClock())


def _path(url: str) -> str | None:
    """Return the file that ``url`` names, None for memory. A message never repeats a URL: it may hold a password."""
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        return None
    if scheme.startswith("postgresql"):
        raise BadArgument(f"PostgreSQL is not in this release yet: there are {_KNOWN}")
    if scheme != "sqlite":
        raise BadArgument(f"no control plane oracle is called {scheme[:50]!r}: there are {_KNOWN}")
    if not rest or rest.startswith(("//", ":")) or "\0" in rest:
        raise BadArgument("an oracle in a file is 'sqlite:' and its path: 'sqlite:./cpo.db' or 'sqlite:/var/cpo.db'")
    return rest
