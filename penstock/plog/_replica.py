"""The plog replica: the state of one copy of a plog and the rules for changing it, without a disk.

Invariants: ``acked <= written <= size``; blocks follow each other without a gap from 0 to ``written``; a sealed plog
has ``written == acked`` as its length and never changes again. Readers see ``acked`` bytes, so no byte that was read
is ever lost. The body of a block is checked against its checksum once, before it is first returned.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import AppendTooLarge, BadArgument, PlogFull, PlogSealed, ReadOutOfRange, WrongOffset
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, block_matches, unpack_block_header
from penstock.plog._head import Identity, State

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
    """The length of a plog, whether it is sealed, and the most bytes that it takes."""

    length: int
    sealed: bool
    size: int


@dataclass(frozen=True, slots=True)
class BlockSlice:
    """A part of a block: the block's number and position in the file, and the part's start and end in the file."""

    index: int
    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """The position at which a plog's file fails a check that it once passed, and the reason."""

    position: int
    reason: str


class Replica:
    """One copy of a plog: the offsets it has reached, and where its blocks begin."""

    __slots__ = ("acked", "key", "known", "plog_id", "sealed", "size", "starts", "verified", "written")

    def __init__(self, plog_id: PlogId, *, size: int, birth: bytes) -> None:
        self.plog_id: Final = plog_id
        self.key: Final = plog_id.uid_bytes + birth  # the prefix of every checksum
        self.size: Final = size
        self.sealed = False
        self.written = 0
        self.acked = 0
        self.known: int | None = None  # the length in the file's head; None: the head is new
        self.starts = array("I")  # the offset of each block's body; PLOG_SIZE_MAX fits
        self.verified = bytearray()  # a flag for each block

    def check_append(self, offset: int, size: int) -> None:
        """Raise the error of an append that is not allowed; the order of the checks is part of the interface."""
        if self.sealed:
            raise PlogSealed(self.plog_id, sealed_offset=self.acked)
        if size > APPEND_SIZE_MAX:
            raise AppendTooLarge(size=size, limit=APPEND_SIZE_MAX)
        if offset != self.written:
            raise WrongOffset(self.plog_id, offset=offset, expected=self.written)
        if size > self.size - self.written:
            raise PlogFull(self.plog_id, free=self.size - self.written, size=size)

    def place(self) -> int:
        """Return the position in the file of the next block."""
        return HEAD_SIZE + len(self.starts) * PLOG_BLOCK_HEADER_SIZE + self.written

    def placed(self, size: int, *, verified: bool = True) -> int:
        """Note a block of ``size`` written at :meth:`place`; return the new offset."""
        self.starts.append(self.written)
        self.verified.append(verified)
        self.written += size
        return self.written

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``; bytes that a seal has cut off meanwhile stay cut off."""
        if not self.sealed:
            assert offset <= self.written
            self.acked = max(self.acked, offset)

    def check_seal(self, offset: int) -> int:
        """Return the length after a seal at ``offset``, at most ``acked``; ``PlogSealed`` if it is sealed elsewhere."""
        if offset < 0:
            raise BadArgument(f"invalid offset {offset} to seal plog {self.plog_id}: use 0 or more")
        if self.sealed and offset != self.acked:
            raise PlogSealed(self.plog_id, sealed_offset=self.acked)
        return min(offset, self.acked)

    def seal(self, length: int) -> None:
        """Take no more appends; the length is ``length`` from now on."""
        assert length <= self.acked
        self.sealed = True
        self.acked = self.written = length

    def info(self) -> PlogInfo:
        """Return the acknowledged length, whether it is sealed, and the size."""
        return PlogInfo(self.acked, self.sealed, self.size)

    def state(self) -> State:
        """Return the state to write into the file's head."""
        return State(self.sealed, self.acked)

    def slices(self, offset: int, size: int) -> Iterator[BlockSlice]:
        """Return the parts of the file that hold these bytes, block by block."""
        if offset < 0 or size < 0:
            raise BadArgument(
                f"invalid read of {size} bytes at {offset} of plog {self.plog_id}: use 0 or more for both"
            )
        end = offset + size
        if end > self.acked:
            raise ReadOutOfRange(self.plog_id, offset=offset, size=size, length=self.acked)
        return self._slices(offset, end)

    def widen(self, offset: int, size: int) -> tuple[int, int]:
        """Return offset and size of the complete blocks that hold these bytes; a range out of bounds is unchanged."""
        end = offset + size
        if offset < 0 or size <= 0 or end > self.acked:
            return offset, size
        index = bisect_left(self.starts, end)
        end = min(self.starts[index], self.acked) if index < len(self.starts) else self.acked
        start = self.starts[bisect_right(self.starts, offset) - 1]
        return start, end - start

    def raw_span(self, offset: int, end: int, *, limit: int) -> tuple[int, int, int]:
        """Return the positions in the file of complete blocks from ``offset`` on, and the offset behind the last.

        They are all blocks up to ``end``, or as many as have ``limit`` bytes, and at least one.
        """
        if not 0 <= offset <= end <= self.acked:
            raise ReadOutOfRange(self.plog_id, offset=offset, size=end - offset, length=self.acked)
        first, last = bisect_left(self.starts, offset), bisect_left(self.starts, end)
        if end - offset > limit:
            last = max(first + 1, bisect_right(self.starts, offset + limit) - 1)
        stop = self.starts[last] if last < len(self.starts) else self.acked
        if first < len(self.starts) and (self.starts[first] != offset or stop > end):
            raise BadArgument(f"no block begins at {offset} of plog {self.plog_id}, or none ends at {end}")
        base = HEAD_SIZE + offset
        return base + first * PLOG_BLOCK_HEADER_SIZE, HEAD_SIZE + stop + last * PLOG_BLOCK_HEADER_SIZE, stop

    def _slices(self, offset: int, end: int) -> Iterator[BlockSlice]:
        index = bisect_right(self.starts, offset) - 1
        while offset < end:
            block_end = min(end, self.starts[index + 1] if index + 1 < len(self.starts) else end)
            shift = HEAD_SIZE + (index + 1) * PLOG_BLOCK_HEADER_SIZE  # the head, and all headers up to this body
            position = self.starts[index] + shift - PLOG_BLOCK_HEADER_SIZE
            yield BlockSlice(index, position, offset + shift, block_end + shift)
            offset, index = block_end, index + 1


def recover_replica(plog_id: PlogId, image: memoryview) -> Replica | Damage | None:
    """Return the plog in a file, whether it was closed or a crash ended it; None if it was never completely created.

    All blocks up to the head's length must be there, or the file is damaged. After that, blocks count as long as
    they pass their check: they are complete, so they may be acknowledged. The first that fails is a torn write.
    """
    identity = Identity.unpack(image)
    if identity is None:
        blank = not any(image[:HEAD_SIZE])
        return None if blank else Damage(0, "its head fails its checksum")
    if identity.uid != plog_id.uid_bytes:
        return Damage(0, "it belongs to another plog")
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
    """Read the headers of the blocks up to the head's length; their bodies are checked when first read."""
    length = state.length
    while replica.written < length:
        position = replica.place()
        header = unpack_block_header(image, position)
        if header is None or header.offset != replica.written or not header.body_size:
            return Damage(
                position, f"no block at offset {replica.written}, though {length} bytes are known to be there"
            )
        if (
            position + PLOG_BLOCK_HEADER_SIZE + header.body_size > len(image)
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
