"""What a block carries of its events besides their bytes: the routing key and the headers of each.

Both stand behind the events, and only if an event of the block has one; flags in the block's header say which. All
words are 4 bytes, big-endian, and come before the bytes that they tell of, so that a column is an Arrow array without
touching an event:

    keys      of each event the length of its key, or 0xFFFFFFFF if it has none; then the keys
    headers   of each event how many headers it has; then of each header the length of its name; of each the length of
              its value; then the names, UTF-8; then the values
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadArgument
from penstock.model import shown
from penstock.stream.format._arrow import check_arrow
from penstock.stream.format._keys import KEY_SIZE_MAX, key_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy.typing as npt

    from penstock.ports import Bytes

__all__ = [
    "HEADERS",
    "HEADERS_SIZE_MAX",
    "HEADERS_TYPE",
    "KEYS",
    "NO_COLUMNS",
    "READ_SCHEMA",
    "TIME_TYPE",
    "WORDS_SIZE",
    "Attributes",
    "Columns",
    "GivenHeaders",
    "Headers",
    "array_bounds",
    "as_headers",
    "check_columns",
    "header_sizes",
    "headers_column",
    "headers_of_list",
    "headers_size",
    "keys_size",
    "pack_columns",
    "pack_key_list",
    "unpack_columns",
    "unpack_only_key",
]

KEYS: Final = 1
HEADERS: Final = 2
HEADERS_SIZE_MAX: Final = 64 << 10  # of one event, with eight bytes for the words of each
HEADERS_TYPE: Final = pa.map_(pa.string(), pa.binary())
_NO_KEY: Final = 0xFFFFFFFF
_WORD: Final = 4
WORDS_SIZE: Final = 3 * _WORD
"""Of an event, its key and its headers: all count, because another event of the block may have what this has not."""

Headers = tuple[tuple[str, bytes], ...]
"""The headers of one event: names and values. A name may be there more than once."""
GivenHeaders: TypeAlias = "Mapping[str, bytes] | Sequence[tuple[str, bytes]]"
"""The headers of one event as a caller gives them: a mapping, or pairs, where a name may be repeated."""
Columns = tuple["pa.BinaryArray | None", "pa.MapArray | None"]
"""The keys and the headers of some events; None: none of them has any."""
NO_COLUMNS: Final[Columns] = (None, None)
TIME_TYPE: Final = pa.timestamp("ms", "UTC")
READ_SCHEMA: Final = pa.schema(
    [
        pa.field("event", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("timestamp", TIME_TYPE, nullable=False),
        pa.field("headers", HEADERS_TYPE),
        pa.field("segment_id", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("mark_time", TIME_TYPE),
    ]
)


class Attributes(msgspec.Struct, frozen=True):
    """The key and the headers of one event; None where it has none."""

    key: bytes | None = None
    headers: Headers | None = None

    @classmethod
    def of(cls, key: str | bytes | None, headers: GivenHeaders | None) -> Self:
        """Check a key and headers that a caller gives, and return them as stored."""
        return cls(None if key is None else key_bytes(key), None if headers is None else as_headers(headers))

    @classmethod
    def at(cls, columns: Columns, index: int) -> Self:
        """Return those of one of many events."""
        keys, headers = columns
        return cls(None if keys is None else keys[index].as_py(), None if headers is None else headers[index].as_py())

    @property
    def size(self) -> int:
        """How many bytes they have in a block."""
        return len(self.key or b"") + headers_size(self.headers)

    def packed(self, *, keeps_key: bool) -> tuple[int, bytes]:
        """Return the flags of a block with this one event, and what stands behind the event."""
        stored = pack_key_list([self.key]) if keeps_key and self.key is not None else []
        flags, parts = pack_columns(None, headers_of_list([self.headers]))
        return flags | (KEYS if stored else 0), b"".join([*stored, *parts])


def as_headers(headers: object) -> Headers:
    """Return the headers that a caller gives for one event; what are none is refused."""
    if not isinstance(headers, Mapping | list | tuple):
        raise BadArgument(f"invalid headers {shown(headers)}: use a mapping of names to values, or a list of pairs")
    pairs = tuple(map(_as_header, headers.items() if isinstance(headers, Mapping) else headers))
    try:
        _check_headers_size(headers_size(pairs))
    except UnicodeEncodeError as error:
        raise BadArgument(f"invalid headers {shown(headers)}: a name is not valid UTF-8 ({error.reason})") from None
    return pairs


def _as_header(pair: object) -> tuple[str, bytes]:
    match pair:
        case (str(name), bytes(value)):
            return name, value
        case (name, value):
            raise BadArgument(f"header {shown(name)}: {shown(value)}: a name is a text, and a value is bytes")
    raise BadArgument(f"invalid header {shown(pair)}: use a pair of a name (str) and a value (bytes)")


def headers_size(headers: Headers | None) -> int:
    """Return how many bytes the headers of an event take in a block, without the word that counts them."""
    return sum(2 * _WORD + len(name.encode()) + len(value) for name, value in headers or ())


def _check_headers_size(size: int) -> None:
    if size > HEADERS_SIZE_MAX:
        raise BadArgument(f"the headers of an event have {size} bytes: at most {HEADERS_SIZE_MAX} are kept with it")


def headers_of_list(headers: Sequence[Headers | None]) -> pa.MapArray:
    """Return the headers of events as a column; an event without any has null there."""
    return pa.array([pairs or None for pairs in headers], HEADERS_TYPE)


def headers_column(headers: object, count: int) -> pa.MapArray:
    """Return what a caller gives as the headers of ``count`` events as a column, checked.

    That is a mapping, pairs or None for each, or an Arrow array: of maps, or of lists of key and value as Spark has
    them.
    """
    if isinstance(headers, pa.Array | pa.ChunkedArray):
        column = _map_column(headers)
    else:
        if not isinstance(headers, list | tuple):
            raise BadArgument(
                f"invalid headers {shown(headers)}: use a list with a mapping, pairs or None for each event"
            )
        column = headers_of_list([None if pairs is None else as_headers(pairs) for pairs in headers])
    if len(column) != count:
        raise BadArgument(f"headers of {len(column)} events for {count} events: give them for each, None where none")
    sizes = header_sizes(column)
    _check_headers_size(int(sizes.max()) if len(sizes) else 0)
    return column


def _map_column(headers: pa.Array | pa.ChunkedArray) -> pa.MapArray:
    check_arrow(headers)
    try:
        array = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
        if pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type):
            array = array.take(pa.array(np.arange(len(array))))
            pairs = array.values
            array = pa.MapArray.from_arrays(array.offsets, pairs.field(0), pairs.field(1)) if len(array) else array[:0]
        column = array.cast(HEADERS_TYPE) if len(array) else pa.array([], HEADERS_TYPE)
        column.validate(full=True)
        column = column.take(pa.array(np.arange(len(column))))  # nothing of what is not shown is left
    except (pa.ArrowException, TypeError, ValueError, IndexError) as error:
        raise BadArgument(f"invalid headers: use an Arrow array of maps from string to binary ({error})") from error
    if column.keys.null_count or column.items.null_count:
        raise BadArgument("invalid headers: a name or a value is null")
    return column


def header_sizes(headers: pa.MapArray) -> npt.NDArray[np.int64]:
    """Return how many bytes the headers of each event take in a block, without the word that counts them."""
    bounds = array_bounds(headers)
    each = np.zeros(int(bounds[-1]) + 1, np.int64)
    np.cumsum(_lengths(headers.keys)[: bounds[-1]] + _lengths(headers.items)[: bounds[-1]] + 2 * _WORD, out=each[1:])
    sizes: npt.NDArray[np.int64] = np.diff(each[bounds])
    return sizes


def pack_columns(keys: pa.BinaryArray | None, headers: pa.MapArray | None) -> tuple[int, list[Bytes]]:
    """Return the flags of a block and what stands behind its events; nothing of a column that has only nulls."""
    flags = 0
    parts: list[Bytes] = []
    if keys is not None and keys.null_count < len(keys):
        flags, parts = KEYS, _pack_keys(keys)
    if headers is not None and headers.null_count < len(headers):
        flags |= HEADERS
        parts += _pack_headers(headers)
    return flags, parts


def _pack_keys(keys: pa.BinaryArray) -> list[Bytes]:
    filled = pc.fill_null(keys, b"") if keys.null_count else keys
    words = _lengths(filled).astype(">u4")
    if keys.null_count:
        words[keys.is_null().to_numpy(zero_copy_only=False)] = _NO_KEY
    return [words.tobytes(), _bytes_of(filled)]


def pack_key_list(keys: Sequence[bytes | None]) -> list[Bytes]:
    """Return the column of keys that came one by one; at least one event has a key."""
    missing = keys.count(None)
    if not missing:
        return [struct.pack(f">{len(keys)}I", *map(len, keys)), b"".join(keys)]  # type: ignore[arg-type]
    words = [_NO_KEY if key is None else len(key) for key in keys]
    return [struct.pack(f">{len(keys)}I", *words), b"".join([key for key in keys if key is not None])]


def _pack_headers(headers: pa.MapArray) -> list[Bytes]:
    bounds = array_bounds(headers)
    names, values = (texts[int(bounds[0]) : int(bounds[-1])] for texts in (headers.keys, headers.items))
    counts = np.diff(bounds).astype(">u4")
    words = (counts, *(_lengths(texts).astype(">u4") for texts in (names, values)))
    return [b"".join(word.tobytes() for word in words), _bytes_of(names), _bytes_of(values)]


def unpack_columns(flags: int, view: memoryview, count: int) -> Columns:
    """Return the columns of ``count`` events over the same memory; ``ValueError`` if they are not valid."""
    cutter = _Cutter(view)
    keys = _unpack_keys(cutter, count) if flags & KEYS else None
    headers = _unpack_headers(cutter, count) if flags & HEADERS else None
    if flags & ~(KEYS | HEADERS) or cutter.left:
        raise ValueError("unknown columns behind its events")
    return keys, headers


def keys_size(columns: Bytes, count: int) -> int:
    """Return how many bytes the keys of ``count`` events take, with their words: in columns that begin with keys."""
    lengths = np.frombuffer(columns, ">u4", count)
    return _WORD * count + int(lengths[lengths != _NO_KEY].sum(dtype=np.int64))


def unpack_only_key(view: memoryview) -> bytes | None:
    """Return the key of the only event of a block, behind which is nothing else; ``ValueError`` if it is not there."""
    size = int.from_bytes(view[:_WORD], "big")
    if (0 if size == _NO_KEY else size) != len(view) - _WORD:
        raise ValueError("the length of its key is not the size of its columns")
    return None if size == _NO_KEY else bytes(view[_WORD:])


def check_columns(flags: int, view: memoryview, count: int) -> None:
    """Refuse, with a ``ValueError``, columns of another process that are invalid or too large."""
    keys, headers = unpack_columns(flags, view, count)
    if keys is not None and len(keys) and int(_lengths(keys).max()) > KEY_SIZE_MAX:
        raise ValueError("a key is too long")
    if headers is not None and len(headers) and int(header_sizes(headers).max()) > HEADERS_SIZE_MAX:
        raise ValueError("headers are too long")


class _Cutter:
    """Takes one piece after another off some bytes."""

    def __init__(self, view: memoryview) -> None:
        self.left = view

    def words(self, count: int) -> npt.NDArray[np.int64]:
        """Take ``count`` length words off the front."""
        return np.frombuffer(self.bytes(_WORD * count), ">u4").astype(np.int64)

    def bytes(self, size: int) -> memoryview:
        """Take ``size`` bytes off the front; ``ValueError`` if there are fewer."""
        if size > len(self.left):
            raise ValueError("the lengths of its columns exceed the size of the block")
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def array(self, lengths: npt.NDArray[np.int64], kind: pa.DataType, validity: pa.Buffer | None = None) -> pa.Array:
        """Take the bytes of an array whose values have these lengths."""
        bounds = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        data = pa.py_buffer(self.bytes(int(bounds[-1])))
        return pa.Array.from_buffers(kind, len(lengths), [validity, pa.py_buffer(bounds.astype(np.int32)), data])


def _unpack_keys(cutter: _Cutter, count: int) -> pa.BinaryArray:
    lengths = cutter.words(count)
    missing = lengths == _NO_KEY
    validity = None
    if missing.any():
        lengths[missing] = 0
        validity = _bitmap(~missing)
    return cutter.array(lengths, pa.binary(), validity)


def _unpack_headers(cutter: _Cutter, count: int) -> pa.MapArray:
    counts = cutter.words(count)
    total = int(counts.sum())
    if total * 2 * _WORD > len(cutter.left):
        raise ValueError("the lengths of its columns exceed the size of the block")
    name_lengths, value_lengths = cutter.words(total), cutter.words(total)
    names, values = cutter.array(name_lengths, pa.string()), cutter.array(value_lengths, pa.binary())
    names.validate(full=True)  # that they are UTF-8
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    pairs = pa.StructArray.from_arrays([names, values], fields=[HEADERS_TYPE.key_field, HEADERS_TYPE.item_field])
    return pa.Array.from_buffers(HEADERS_TYPE, count, [_bitmap(counts > 0), pa.py_buffer(bounds)], children=[pairs])


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def array_bounds(array: pa.BinaryArray | pa.MapArray) -> npt.NDArray[np.int32]:
    """Return where each value of an array begins and ends; one without values may have no offsets, as Arrow permits."""
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, _WORD * array.offset)


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = np.diff(array_bounds(array)).astype(np.int64)
    return lengths


def _bytes_of(array: pa.Array) -> memoryview:
    bounds, data = array_bounds(array), array.buffers()[2]
    return memoryview(b"" if data is None else data)[int(bounds[0]) : int(bounds[-1])]
