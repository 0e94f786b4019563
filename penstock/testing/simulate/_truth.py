"""The invariants: what all owners have promised, compared with every change of a replica and every answer.

- A replica holds a prefix of what the one writer of its plog has written.
- What is committed is durable on all three servers when the owner learns of it, and an owner keeps no more than that of
  its own plogs: the rest could have one copy, or two.
- A plog has one length, at least its committed offset, and every sealed replica has that length.
- A deleted plog does not come back, but on a server whose folder is set back.
- What the scrub of a server lists is damaged: nothing comes back that was mended. In the end all damage of sealed plogs
  is found without a read, and mended.
- The log has one content: what an owner has acknowledged or read, every later owner reads again at the same offset, and
  only the newest owner adds to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.model import PlogId
    from penstock.plog.replicated import VersionedRow
    from penstock.testing.simulate._server import SimServer

__all__ = ["Truth", "Violation"]


class Violation(AssertionError):
    """A run has broken a promise; its seed replays it."""


class Truth:
    """What was promised so far in one run."""

    def __init__(self, groups: dict[str, list[SimServer]], rows: Mapping[PlogId, VersionedRow]) -> None:
        self._groups, self._rows = groups, rows
        self._written: dict[PlogId, bytearray] = {}
        self._writers: dict[PlogId, int] = {}
        self.committed: dict[PlogId, int] = {}
        self.lengths: dict[PlogId, int] = {}
        self._deleting: dict[PlogId, int] = {}  # the epoch of the last owner that has begun to delete it
        self._deleted: dict[PlogId, list[str]] = {}  # and the servers that still have a replica
        self.harmed: dict[tuple[str, bytes], None] = {}  # replicas that a fault took or damaged after their promise
        self.left_over: dict[tuple[str, bytes], None] = {}  # replicas that came back with an older folder
        self.visible = bytearray()
        self.start = 0
        self.opened_epoch = 0
        self.acked = 0

    def check(self, holds: bool, message: str) -> None:
        """Raise if an invariant does not hold."""
        if not holds:
            raise Violation(message)

    def check_replicas(self) -> None:
        """Check every replica that has changed since the last call."""
        for servers in self._groups.values():
            for server in servers:
                if server.storage.changed:
                    for plog_id in server.storage.changed:
                        self._check_replica(server, plog_id)
                    server.storage.changed.clear()

    def _check_replica(self, server: SimServer, plog_id: PlogId) -> None:
        replica = server.storage.replicas_by_uid.get(plog_id.uid_bytes)
        if replica is None:
            return
        place = f"replica {server.name} of plog {plog_id}"
        if plog_id in self._deleted and plog_id not in self._rows:
            self.check(server.name in self._deleted[plog_id], f"{place} came back after the plog was deleted")
        content, written = replica.content, self._written.get(plog_id, b"")
        self.check(written[: len(content)] == content, f"{place} has other bytes than its writer wrote")
        if replica.is_sealed:
            length = self.lengths.setdefault(plog_id, len(content))
            self.check(length == len(content), f"{place} is sealed at {len(content)}, the plog at {length}")
            self.check(length >= self.committed.get(plog_id, 0), f"{place} is sealed below the committed offset")

    def check_findings(self) -> None:
        """Check that what the scrubs have found is there, and damaged: what was mended does not come back."""
        for servers in self._groups.values():
            for server in servers:
                for uid in server.storage.damaged:
                    replica = server.storage.replicas_by_uid.get(uid)
                    is_damaged = replica is not None and bool(replica.damage)
                    self.check(is_damaged, f"the scrub of {server.name} lists {uid.hex()}, which is mended or gone")

    def note_written(self, epoch: int, plog_id: PlogId, offset: int, data: bytes) -> None:
        """Note an append that an owner sends."""
        writer = self._writers.setdefault(plog_id, epoch)
        if epoch < writer:
            return  # it does not know yet that a newer owner has deleted the plog, and created it again
        self.check(writer == epoch, f"plog {plog_id} of epoch {writer} is written by epoch {epoch}")
        written = self._written.setdefault(plog_id, bytearray())
        self.check(len(written) == offset, f"plog {plog_id} is written at {offset}, not at {len(written)}")
        written += data

    def note_committed(self, epoch: int, plog_id: PlogId, offset: int) -> None:
        """Note what an owner takes for durable on all servers."""
        is_other = epoch < self._writers.get(plog_id, 0)  # a newer owner has deleted the plog, and created it again
        if not offset or (not is_other and offset <= self.committed.get(plog_id, 0)):
            return
        for server in self._groups[plog_id.group]:
            if (server.name, plog_id.uid_bytes) not in self.harmed:
                durable = server.acknowledged_max(plog_id.uid_bytes, epoch)
                message = f"{offset} bytes of plog {plog_id} are committed, {server.name} had {durable}"
                self.check(durable >= offset, message)
        if is_other:
            return
        self.committed[plog_id] = offset
        length = self.lengths.get(plog_id)
        self.check(length is None or length >= offset, f"plog {plog_id} is sealed at {length}, and {offset} committed")

    def note_length(self, epoch: int, plog_id: PlogId, length: int) -> None:
        """Note the decided length that an owner was told."""
        known = self.lengths.setdefault(plog_id, length)
        self.check(known == length, f"plog {plog_id} had the length {known}, now {length}")
        committed = self.committed.get(plog_id, 0)
        self.check(length >= committed, f"plog {plog_id} is sealed at {length}, and {committed} bytes were committed")
        newest = max(self.opened_epoch, self._deleting.get(plog_id, 0))
        is_stale = epoch < newest  # it may remember what a newer owner has deleted
        self.check(is_stale or plog_id not in self._deleted, f"plog {plog_id} was deleted, and has a length")

    def note_sealed(self, epoch: int, plog_id: PlogId, length: int) -> None:
        """Note the length at which the present owner has sealed a plog; of its own, it keeps what is committed."""
        self.note_length(epoch, plog_id, length)
        committed = self.committed.get(plog_id, 0)
        is_own = self._writers.get(plog_id) == epoch
        self.check(
            not is_own or length <= committed, f"an owner keeps {length} bytes of which {committed} are committed"
        )

    def note_deletion(self, epoch: int, plog_id: PlogId) -> None:
        """Note that an owner begins to delete a plog: servers do so before it learns of it."""
        self._deleting[plog_id] = max(epoch, self._deleting.get(plog_id, 0))

    def note_deleted(self, epoch: int, plog_id: PlogId) -> None:
        """Note a plog that an owner has deleted, unless a newer one has created it again meanwhile."""
        if epoch < self._writers.get(plog_id, 0):
            return
        self._deleted[plog_id] = self._holders(plog_id)

    def _holders(self, plog_id: PlogId) -> list[str]:
        servers, uid = self._groups[plog_id.group], plog_id.uid_bytes
        return [server.name for server in servers if uid in server.storage.replicas_by_uid]

    def note_creation(self, epoch: int, plog_id: PlogId) -> None:
        """Note that an owner is about to create a plog; if no server has one of this id any more, it is another."""
        if epoch >= self._writers.get(plog_id, 0) and not self._holders(plog_id):
            for known in (self._deleting, self._deleted, self._written, self.committed, self.lengths):
                known.pop(plog_id, None)
            self._writers[plog_id] = epoch

    def note_set_back(self, server: SimServer, uids: Iterable[bytes]) -> None:
        """Note a server whose folder is set back: it may have plogs again that were deleted, and it alone may."""
        places = dict.fromkeys((server.name, uid) for uid in uids)
        self.harmed.update(places)
        self.left_over.update(places)
        for plog_id, holders in self._deleted.items():
            if (server.name, plog_id.uid_bytes) in places:
                holders.append(server.name)

    def is_deleted(self, plog_id: PlogId) -> bool:
        """Return whether a plog was deleted."""
        return plog_id in self._deleted

    def content_of(self, plog_id: PlogId) -> bytes:
        """Return what the writer of a plog has written."""
        return bytes(self._written.get(plog_id, b""))

    def note_acked(self, epoch: int, start: int, data: bytes) -> None:
        """Note an append to the log that an owner has acknowledged to its caller."""
        self.acked += 1
        self._note(epoch, start, data, f"epoch {epoch} acknowledged {data!r} at {start}")

    def note_read(self, epoch: int, start: int, data: bytes) -> None:
        """Note bytes of the log that an owner has read."""
        self._note(epoch, start, data, f"epoch {epoch} read {len(data)} bytes at {start}")

    def note_opened(self, epoch: int, start: int, data: bytes) -> None:
        """Note the content of the log when a new owner has recovered it."""
        end = start + len(data)
        if epoch > self.opened_epoch:
            missing = bytes(self.visible[end : end + 40])
            self.check(end >= len(self.visible), f"epoch {epoch} ends at {end}, {missing!r} was acknowledged or read")
            self.opened_epoch = epoch
        self._note(epoch, start, data, f"epoch {epoch} opened the log, {start} to {end}")

    def _note(self, epoch: int, start: int, data: bytes, event: str) -> None:
        end = start + len(data)
        known = bytes(self.visible[start:end])
        self.check(data[: len(known)] == known, f"{event}: {known!r} was there before, now {data[: len(known)]!r}")
        if end > len(self.visible):
            self.check(start <= len(self.visible), f"{event}: a gap behind {len(self.visible)}")
            self.check(epoch >= self.opened_epoch, f"{event}, and epoch {self.opened_epoch} has opened the log")
            self.visible += data[len(known) :]
