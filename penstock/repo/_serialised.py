"""A stream on its way through a connection: its items in blocks, in their order.

A text above a megabyte is sent as it is stored, in pieces, so a server has a piece of it in memory, and never all of
it. The head of a block says where its last piece ends.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from penstock.errors import ServerError
from penstock.repo._block import BlockDamaged, Item, ItemBlock, block_size, encode_block
from penstock.repo._keys import common_prefix
from penstock.repo._records import ABSENT, AbsentFactory, ContentFactory, Record, StoredFactory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.repo._keys import Key
    from penstock.repo._records import Factory, RecordStream

__all__ = ["RepositoryServer", "blocks_of", "records_of"]

_BLOCK_SIZE: Final = 1 << 20
_BLOCK_ITEMS: Final = 1_000
_LEVEL: Final = 3  # about as quick as the network
_UNKNOWN: Final = bytes(20)


@runtime_checkable
class RepositoryServer(Protocol):
    """A store whose server searches repositories by itself."""

    def repository_blocks(
        self, stream: str, search: str, *, ids: list[bytes], known: list[bytes], ordering: str, complete_inventory: bool
    ) -> Iterator[bytes]:
        """Return the blocks of a stream, as the server sends them."""


def blocks_of(stream: RecordStream) -> Iterator[bytes]:
    """Return the items of a stream in blocks of about a megabyte, or in pieces of larger blocks."""
    items: list[Item] = []
    size = 0
    for record in stream.iter_contents():
        for factory in record.entries:
            if isinstance(factory, StoredFactory) and factory.read_pieces is not None:
                if items:
                    block, items, size = encode_block(items, level=_LEVEL), [], 0
                    yield block
                yield from factory.read_pieces()
                continue
            items.append(_item(record.key_prefix, factory))
            size += items[-1].size
            if size >= _BLOCK_SIZE or len(items) == _BLOCK_ITEMS:
                block, items, size = encode_block(items, level=_LEVEL), [], 0  # which are gone while it is sent
                yield block
    if items:
        yield encode_block(items, level=_LEVEL)


def records_of(pieces: Iterable[bytes]) -> Iterator[Record]:
    """Return the records of a stream that comes in blocks, or pieces of them."""
    try:
        for data in _joined(pieces):
            block = ItemBlock(data)
            factories = [_factory(block, number) for number in range(len(block.keys))]
            for prefix, together in groupby(factories, key=lambda pair: pair[0]):
                yield Record(prefix, (factory for _, factory in together))
    except BlockDamaged as error:
        raise ServerError(f"the server sent a block that is damaged: {error}") from None


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return blocks, each from as many pieces as make it up."""
    block: list[bytes] = []
    missing = 0
    for piece in pieces:
        missing = (missing if block else block_size(piece)) - len(piece)
        block.append(piece)
        if missing <= 0:
            data = b"".join(block)
            block.clear()
            yield data
    if block:
        raise BlockDamaged(f"{missing:,} bytes of it did not come")


def _item(prefix: Key, factory: Factory) -> Item:
    parents = tuple((*prefix, *parent) for parent in factory.parents)
    kind = factory.storage_kind
    data = b"" if kind == ABSENT else factory.get_bytes_as(kind)
    sha1 = bytes.fromhex(factory.sha1) if factory.sha1 else _UNKNOWN
    return Item((*prefix, *factory.key), parents, sha1, kind, data, factory.compressor_data)


def _factory(block: ItemBlock, number: int) -> tuple[Key, Factory]:
    key, parents = block.keys[number], block.parents(number)
    prefix = common_prefix(key, parents)
    size = len(prefix)
    if block.kind(number) == ABSENT:
        return prefix, AbsentFactory(key[size:])
    sha1 = block.sha1(number)
    return prefix, ContentFactory(
        key[size:],
        tuple(parent[size:] for parent in parents),
        bytes(block.data(number, _no_basis)),
        storage_kind=block.kind(number),
        sha1=sha1.hex() if sha1 != _UNKNOWN else None,
        compressor_data=block.compressor_data(number),
    )


def _no_basis(key: Key) -> bytes:
    raise BlockDamaged(f"it builds on {key!r}, which was not sent")
