"""Opening an oracle by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, CpoUnavailable
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from penstock.cpo._cpo import Cpo
    from penstock.cpo._sql import Database
    from penstock.ports import Clock

_KNOWN: Final = (
    "'sqlite:PATH' (a file, created if there is none), 'postgresql://USER:PASSWORD@HOST/DATABASE' "
    "or 'memory:' (gone when closed)"
)
_POSTGRESQL: Final = ("postgresql", "postgresql+psycopg")


def open_cpo(url: str, *, clock: Clock | None = None, create: bool = True) -> Cpo:
    """Open the oracle at ``url``, and check all of it; create it if there is none, unless ``create`` is false.

    ``sqlite:PATH`` is a file that any number of processes on this machine may share; ``postgresql://…`` is a database
    that processes on any machine may share, as libpq takes it; ``memory:`` is for tests. ``clock`` decides when leases
    expire; PostgreSQL uses its own, and refuses another. Raises ``CpoUnavailable`` if it cannot be opened,
    ``CpoCorrupt`` if it is damaged, ``FormatUnknown`` if a newer Penstock wrote it, or its table is not ours.
    """
    # SQLAlchemy is slow to import, and a module that only uses Cpo as a type does not need it.
    from penstock.cpo._sql import SqlCpo  # noqa: PLC0415

    return SqlCpo(_database(url, clock, create=create), create=create)


def _database(url: str, clock: Clock | None, *, create: bool) -> Database:
    """Return the database that ``url`` names. A message never repeats a URL: it may hold a password."""
    scheme, _, rest = url.partition(":")
    if scheme in _POSTGRESQL and rest.startswith("//"):
        try:
            from penstock.cpo._postgresql import PostgresqlDatabase  # noqa: PLC0415
        except ImportError as error:
            advice = "in a clone of Penstock, run pip install '.[postgresql]'"
            raise BadArgument(f"an oracle on PostgreSQL needs the package psycopg ({error}): {advice}") from None
        if clock is not None:
            raise BadArgument("leases on PostgreSQL expire by the clock of its server: open it without a clock")
        return PostgresqlDatabase(f"postgresql:{rest}")
    from penstock.cpo._sqlite import SqliteDatabase  # noqa: PLC0415

    path = _path(url)
    if not create and path is not None and not Path(path).exists():
        raise CpoUnavailable(url, reason="there is no such file")
    return SqliteDatabase(url, path, clock or SystemClock())


def _path(url: str) -> str | None:
    """Return the file that ``url`` names, None for memory."""
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        return None
    if scheme != "sqlite":
        raise BadArgument(f"invalid address {scheme[:50]!r} of a control plane oracle: use {_KNOWN}")
    if not rest or rest.startswith(("//", ":")) or "\0" in rest:
        raise BadArgument(
            "invalid oracle address: use 'sqlite:' and a path, as in 'sqlite:./cpo.db' or 'sqlite:/var/cpo.db'"
        )
    return rest
