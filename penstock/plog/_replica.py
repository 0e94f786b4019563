"""The plog replica: what one copy of a plog holds and what it allows, without a disk.

Invariants: ``acked <= written <= size``; blocks lie without a gap from 0 to ``written``; a sealed plog has
``written == acked`` as its length and never changes again. A reader sees ``acked`` bytes, so nothing that was
read is ever lost. Bodies of blocks are checked against their checksum once, before they are first handed out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import AppendTooLarge, BadArgument, PlogFull, PlogSealed, ReadOutOfRange, WrongOffset
from penstock.plog._block import BLOCK_HEADER_SIZE, block_matches, unpack_block_header
from penstock.plog._head import HEAD_SIZE, Identity, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import PlogId

__all__ = [
    "APPEND_SIZE_MAX",
    "PLOG_SIZE_DEFAULT",
    "PLOG_SIZE_MAX",
    "BlockSlice",
    "Damage",
    "PlogInfo",
    "Replica",
    "recover_replica",
]

APPEND_SIZE_MAX: Final = 2 << 20
PLOG_SIZE_DEFAULT: Final = 16 << 20
PLOG_SIZE_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class PlogInfo:
    """How long a plog is, whether it is sealed, and how much it takes at the most."""

    length: int
    sealed: bool
    size: int


@dataclass(frozen=True, slots=True)
class BlockSlice:
    """A part of one block: the block's number and place in the file, and where the part lies in the file."""

    index: int
    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a plog's file fails a check that it once passed, and which."""

    position: int
    reason: str


class Replica:
    """One copy of a plog."""

    __slots__ = ("acked", "key", "known", "plog_id", "sealed", "size", "starts", "verified", "written")

    def __init__(self, plog_id: PlogId, *, size: int, birth: bytes) -> None:
        self.plog_id: Final = plog_id
        self.key: Final = plog_id.uid_bytes + birth  # every checksum starts with it
        self.size: Final = size
        self.sealed = False
        self.written = 0
        self.acked = 0
        self.known: int | None = None  # how long the head of the file says it is; None: the head is new
        self.starts = array("I")  # where each block's body starts; PLOG_SIZE_MAX fits
        self.verified = bytearray()  # one flag a block

    def check_append(self, offset: int, size: int) -> None:
        """Refuse an append that must not happen; the order of the checks is a promise."""
        if self.sealed:
            raise PlogSealed(self.plog_id, sealed_offset=self.acked)
        if size > APPEND_SIZE_MAX:
            raise AppendTooLarge(size=size, limit=APPEND_SIZE_MAX)
        if offset != self.written:
            raise WrongOffset(self.plog_id, offset=offset, expected=self.written)
        if size > self.size - self.written:
            raise PlogFull(self.plog_id, free=self.size - self.written, size=size)

    def place(self) -> int:
        """Return where in the file the next block goes."""
        return HEAD_SIZE + len(self.starts) * BLOCK_HEADER_SIZE + self.written

    def placed(self, size: int, *, verified: bool = True) -> int:
        """Note a block of ``size`` written at :meth:`place`; return the new offset."""
        self.starts.append(self.written)
        self.verified.append(verified)
        self.written += size
        return self.written

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``; what a seal has cut off meanwhile stays cut off."""
        if not self.sealed:
            assert offset <= self.written
            self.acked = max(self.acked, offset)

    def check_seal(self, offset: int) -> int:
        """Return where a seal at ``offset`` seals: the smaller of the two; sealed elsewhere already is an error."""
        if offset < 0:
            raise BadArgument(f"cannot seal plog {self.plog_id} at {offset}: offsets are not negative")
        if self.sealed and offset != self.acked:
            raise PlogSealed(self.plog_id, sealed_offset=self.acked)
        return min(offset, self.acked)

    def seal(self, length: int) -> None:
        """Take no more appends, and be ``length`` long from now on."""
        assert length <= self.acked
        self.sealed = True
        self.acked = self.written = length

    def info(self) -> PlogInfo:
        """Return what everybody may know."""
        return PlogInfo(self.acked, self.sealed, self.size)

    def state(self) -> State:
        """Return what the file's head says of it."""
        return State(self.sealed, self.acked)

    def slices(self, offset: int, size: int) -> Iterator[BlockSlice]:
        """Return where in the file the bytes are, block by block."""
        if offset < 0 or size < 0:
            raise BadArgument(f"cannot read {size} bytes at {offset} of plog {self.plog_id}: neither may be negative")
        end = offset + size
        if end > self.acked:
            raise ReadOutOfRange(self.plog_id, offset=offset, size=size, length=self.acked)
        return self._slices(offset, end)

    def widen(self, offset: int, size: int) -> tuple[int, int]:
        """Return offset and size of the whole blocks that hold these bytes; what is out of range stays so."""
        end = offset + size
        if offset < 0 or size <= 0 or end > self.acked:
            return offset, size
        index = bisect_left(self.starts, end)
        end = min(self.starts[index], self.acked) if index < len(self.starts) else self.acked
        start = self.starts[bisect_right(self.starts, offset) - 1]
        return start, end - start

    def _slices(self, offset: int, end: int) -> Iterator[BlockSlice]:
        index = bisect_right(self.starts, offset) - 1
        while offset < end:
            block_end = min(end, self.starts[index + 1] if index + 1 < len(self.starts) else end)
            shift = HEAD_SIZE + (index + 1) * BLOCK_HEADER_SIZE  # what stands in the file before, but for bodies
            position = self.starts[index] + shift - BLOCK_HEADER_SIZE
            yield BlockSlice(index, position, offset + shift, block_end + shift)
            offset, index = block_end, index + 1


def recover_replica(plog_id: PlogId, image: memoryview) -> Replica | Damage | None:
    """Return the plog that a file holds after any end, clean or not; None if it was never wholly created.

    What the head knows to be there must be there, or the file is damaged. Behind that, blocks count as long as
    they pass their check: they are whole, so their writer may have been told so. The first that fails was torn.
    """
    identity = Identity.unpack(image)
    if identity is None:
        blank = not any(image[:HEAD_SIZE])
        return None if blank else Damage(0, "its head fails its checksum")
    if identity.uid != plog_id.uid_bytes:
        return Damage(0, "it is another plog's")
    state = State.unpack(identity.uid + identity.birth, image)
    if state is None:
        return Damage(0, "the state in its head fails its checksum")
    replica = Replica(plog_id, size=identity.size, birth=identity.birth)
    replica.known = None if state.new else state.length
    damage = _read_known(replica, image, state)
    if damage is not None:
        return damage
    if state.sealed:
        replica.acked = replica.written
        replica.seal(state.length)
        return replica
    _read_rest(replica, image)
    replica.acked = replica.written
    return replica


def _read_known(replica: Replica, image: memoryview, state: State) -> Damage | None:
    """Walk the headers of blocks that are known to be there; their bodies are checked when first read."""
    length = state.length
    while replica.written < length:
        position = replica.place()
        header = unpack_block_header(image, position)
        if header is None or header.offset != replica.written or not header.body_size:
            return Damage(
                position, f"no block at offset {replica.written}, though {length} bytes are known to be there"
            )
        if (
            position + BLOCK_HEADER_SIZE + header.body_size > len(image)
            or header.body_size > replica.size - header.offset
        ):
            return Damage(position, f"the block at offset {replica.written} goes past the end of the file")
        replica.placed(header.body_size, verified=False)
    if replica.written > length and not state.sealed:
        return Damage(HEAD_SIZE, f"no block ends at offset {length}, though one is known to")
    return None


def _read_rest(replica: Replica, image: memoryview) -> None:
    while True:
        position = replica.place()
        header = unpack_block_header(image, position)
        if header is None or header.offset != replica.written or not header.body_size:
            return
        if not block_matches(replica.key, image, position):
            return
        replica.placed(header.body_size)
