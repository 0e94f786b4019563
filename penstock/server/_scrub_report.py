"""What a plog server tells the oracle about its disk, for ``penstock cluster status``: one small row a server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from penstock.errors import CasConflict, PenstockError

if TYPE_CHECKING:
    from penstock.cpo import Cpo
    from penstock.plog.replicated import ServerIdentity
    from penstock.plog.server import PlogServer

__all__ = ["REPORT_S", "ScrubReport", "ScrubRow", "role_of", "scrub_rows"]

REPORT_S: Final = 10.0  # between two looks; only what has changed is written
_ROWS: Final = "scrub/"
_logger: Final = logging.getLogger("penstock.plog_server")


class ScrubRow(msgspec.Struct, frozen=True, array_like=True):
    """How far the present scrub of a server is, in percent, and how many damaged replicas wait to be replaced.

    ``takes_writes`` is False if its disk has refused the last write, because it is full or fails.
    """

    percent: int
    damaged: int
    takes_writes: bool = True


def role_of(row: ScrubRow | None, *, is_running: bool) -> Literal["plog-server", "unwritable", "away"]:
    """Return the role of a plog server in lists of servers."""
    if not is_running:
        return "away"
    return "plog-server" if row is None or row.takes_writes else "unwritable"


class ScrubReport:
    """The row of one server, written when it has changed."""

    def __init__(self, cpo: Cpo, server: PlogServer, identity: ServerIdentity, address: str) -> None:
        self._cpo, self._server = cpo, server
        self._key = f"{_ROWS}{identity.cluster}/{identity.group}/{address}"
        self._written: ScrubRow | None = None

    def write(self) -> None:
        """Write the row, if it has changed; whoever else writes it has another view of the same server."""
        scrubber = self._server.scrubber
        partitions = self._server.folder.partitions().values()
        takes_writes = all(partition.replicas.takes_writes for partition in partitions)
        row = ScrubRow(int(scrubber.figures.progress * 100), scrubber.damaged(), takes_writes)
        if row == self._written:
            return
        try:
            stored = self._cpo.get(self._key)
            self._cpo.cas(self._key, msgspec.msgpack.encode(row), expected=0 if stored is None else stored.version)
        except CasConflict:
            return
        except PenstockError as error:  # it is written the next time
            _logger.warning("the state of this server's disk cannot be written: %s", error)
            return
        self._written = row


def scrub_rows(cpo: Cpo) -> dict[tuple[str, str, str], ScrubRow]:
    """Return the rows of all servers by cluster, group and address; one that cannot be read is left out."""
    rows = {}
    for key in cpo.keys(_ROWS):
        entry = cpo.get(key)
        cluster, _, rest = key.removeprefix(_ROWS).partition("/")
        group, _, address = rest.partition("/")
        try:
            rows[cluster, group, address] = msgspec.msgpack.decode(b"" if entry is None else entry.value, type=ScrubRow)
        except msgspec.MsgspecError:
            continue
    return rows
