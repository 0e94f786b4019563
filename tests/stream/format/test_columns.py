"""Keys and headers of the events of a block, as they are stored behind the events."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument, StreamCorrupt
from penstock.stream.format._block import (
    SpliceLabel,
    StreamBlockHeader,
    block_digest,
    read_block,
    read_header,
    without_keys,
)
from penstock.stream.format._columns import (
    HEADERS,
    HEADERS_SIZE_MAX,
    HEADERS_TYPE,
    KEYS,
    Attributes,
    as_headers,
    check_columns,
    headers_column,
    headers_of_list,
    pack_columns,
    pack_key_list,
    unpack_columns,
)
from penstock.stream.format._keys import KEY_SIZE_MAX, key_bytes
from penstock.stream.write._batch import EventRows, as_rows

KEY = st.none() | st.binary(max_size=20)
NAME = st.text(st.characters(codec="utf-8"), max_size=8)
PAIRS = st.dictionaries(NAME, st.binary(max_size=10), max_size=3).map(lambda pairs: tuple(pairs.items()))


def columns_of(keys: list[bytes | None], headers: list[tuple[tuple[str, bytes], ...]]) -> tuple[int, bytes]:
    flags, parts = pack_columns(pa.array(keys, pa.binary()), headers_of_list(headers))
    return flags, b"".join(parts)


def test_keys_and_headers_lie_behind_the_events_lengths_first() -> None:
    """The bytes are what other programs, and later versions, read."""
    flags, parts = pack_columns(
        pa.array([b"k1", None, b""], pa.binary()), headers_of_list([(("a", b"xy"), ("é", b"")), None, None])
    )
    assert flags == KEYS | HEADERS
    assert b"".join(parts) == (
        bytes.fromhex("00000002 ffffffff 00000000")
        + b"k1"
        + bytes.fromhex("00000002 00000000 00000000")
        + bytes.fromhex("00000001 00000002")
        + bytes.fromhex("00000002 00000000")
        + "aé".encode()
        + b"xy"
    )


def test_columns_without_values_take_no_room() -> None:
    """A stream without keys and headers pays nothing for them."""
    assert pack_columns(None, None) == (0, [])
    assert pack_columns(pa.array([None, None], pa.binary()), headers_of_list([None, ()])) == (0, [])
    assert Attributes.of(None, None).packed(keeps_key=True) == (0, b"")


@given(st.lists(st.tuples(KEY, PAIRS), min_size=1, max_size=12))
def test_columns_come_back_as_they_were(rows: list[tuple[bytes | None, tuple[tuple[str, bytes], ...]]]) -> None:
    """Any key and any headers survive, also empty ones, which are not the same as none."""
    keys, pairs = [key for key, _ in rows], [one for _, one in rows]
    flags, packed = columns_of(keys, pairs)
    check_columns(flags, memoryview(packed), len(rows))
    found_keys, found_headers = unpack_columns(flags, memoryview(packed), len(rows))
    assert ([None] * len(rows) if found_keys is None else found_keys.to_pylist()) == keys
    found = [None] * len(rows) if found_headers is None else found_headers.to_pylist()
    assert [tuple(one or ()) for one in found] == pairs
    if any(key is not None for key in keys):
        assert packed.startswith(b"".join(pack_key_list(keys))), "one by one is the same"


@given(st.lists(st.tuples(KEY, PAIRS), min_size=2, max_size=12), st.data())
def test_part_of_a_batch_packs_as_if_it_were_alone(
    rows: list[tuple[bytes | None, tuple[tuple[str, bytes], ...]]], data: st.DataObject
) -> None:
    """A batch is cut into blocks by slices, whose Arrow arrays begin somewhere inside."""
    first = data.draw(st.integers(0, len(rows) - 1))
    last = data.draw(st.integers(first + 1, len(rows)))
    keys, headers = [key for key, _ in rows], [one for _, one in rows]
    events = [b"e%d" % place for place in range(len(rows))]
    whole = EventRows(pa.array(events, pa.binary()), pa.array(keys, pa.binary()), headers_of_list(headers))
    alone = EventRows(
        pa.array(events[first:last], pa.binary()),
        pa.array(keys[first:last], pa.binary()),
        headers_of_list(headers[first:last]),
    )
    flags, body = whole.part(first, last).packed()
    assert (flags, b"".join(body)) == (alone.packed()[0], b"".join(alone.packed()[1]))
    assert whole.sizes()[first:last].tolist() == whole.part(first, last).sizes().tolist()
    total = sum(map(len, body))
    assert total <= int(whole.part(first, last).sizes().sum()), "a block never is larger than was reckoned with"


@given(st.lists(st.tuples(KEY, PAIRS), min_size=1, max_size=6), st.data())
def test_damaged_columns_are_refused_and_never_read_beyond(
    rows: list[tuple[bytes | None, tuple[tuple[str, bytes], ...]]], data: st.DataObject
) -> None:
    """A client may send anything: a length is compared with what is there before anything is looked at."""
    flags, packed = columns_of([key for key, _ in rows], [one for _, one in rows])
    bad = bytearray(packed or b"\0\0\0\0")
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(bad) - 1), st.integers(0, 255)), max_size=4)):
        bad[place] = byte
    bad = bad[: data.draw(st.integers(0, len(bad)))] + data.draw(st.binary(max_size=3))
    try:
        check_columns(data.draw(st.sampled_from([flags, 0, 1, 2, 3, 4, 255])), memoryview(bytes(bad)), len(rows))
    except ValueError:
        return


def test_block_whose_columns_do_not_fit_is_corrupt() -> None:
    """The error says where, as for every other damage."""
    header = StreamBlockHeader(count=1, columns=KEYS)
    view = memoryview(header.pack() + (1).to_bytes(4, "big") + b"e" + (9).to_bytes(4, "big") + b"k")
    block = read_block(view, where="segment 0", start=0)
    with pytest.raises(StreamCorrupt, match="lengths of its columns exceed"):
        _ = block.columns  # type: ignore[union-attr]


def test_digest_of_a_block_does_not_know_when_and_where_it_was_appended() -> None:
    """A client cannot know either; by the digest it asks whether its block got there before a connection was lost."""
    header = StreamBlockHeader(count=1, writer=b"w" * 16, last_number=7)
    stored = read_header(memoryview(header.pack_at(1_700_000_000_000, 41)), where="segment 0", start=0)
    assert block_digest(header, b"bo", b"dy") == block_digest(stored, b"body")
    assert block_digest(header, b"body") != block_digest(
        StreamBlockHeader(count=2, writer=b"w" * 16, last_number=7), b"body"
    )


@pytest.mark.parametrize("keys", [[b"k", b"long key"], [None, b"k"], [b"", None]])
@pytest.mark.parametrize("headers", [None, [{"h": b"v"}, None]])
@pytest.mark.parametrize("is_in_one", [True, False])
def test_keys_are_dropped_from_a_block_and_nothing_else_is(
    keys: list[bytes | None], headers: list[dict[str, bytes] | None] | None, *, is_in_one: bool
) -> None:
    """Clients send blocks in one part or several; whether a stream stores their keys, its owner decides."""
    rows, _ = as_rows([b"one", b"three"], keys, headers, without=0.0)
    flags, body = rows.packed()
    parts = [b"".join(body)] if is_in_one else body
    header = StreamBlockHeader(count=2, columns=flags, last_number=2)
    kept, *rest = without_keys(header, *parts)
    plain_flags, plain = EventRows(rows.events, None, rows.headers).packed()
    assert (kept, b"".join(rest)) == (StreamBlockHeader(count=2, columns=plain_flags, last_number=2), b"".join(plain))
    assert block_digest(header, *parts) == block_digest(kept, *rest), "a client finds its block all the same"
    assert without_keys(kept, *rest) == (kept, *rest)


def test_label_of_a_splice_comes_back() -> None:
    """It is stored with the plogs that a segment has taken over."""
    label = SpliceLabel(12, 1_700_000_000_000)
    assert label.pack() == bytes.fromhex("000000000000000c 0000018bcfe56800")
    assert SpliceLabel.unpack(label.pack()) == label


@pytest.mark.parametrize(
    "headers",
    [
        "trace",
        [("a",)],
        ["ab"],
        ("a", b"1"),
        [(b"a", b"")],
        [None],
        {"a": "text"},
        {1: b""},
        {b"a": b""},
        {"a": None},
        {"\ud800": b""},
        7,
        {"a": 1.5},
    ],
)
def test_what_are_no_headers_is_refused(headers: object) -> None:
    """The error names what is wrong, before anything is written."""
    with pytest.raises(BadArgument, match="header"):
        as_headers(headers)


def test_headers_and_keys_have_a_limit() -> None:
    """A block with one event and all it carries has to fit into one append."""
    as_headers({"a": bytes(HEADERS_SIZE_MAX - 9)})
    with pytest.raises(BadArgument, match="65545 bytes: at most 65536"):
        as_headers({"a": bytes(HEADERS_SIZE_MAX)})
    key_bytes(bytes(KEY_SIZE_MAX))
    with pytest.raises(BadArgument, match="too long"):
        key_bytes("x" * (KEY_SIZE_MAX + 1))


def test_headers_come_as_mappings_maps_or_lists_of_pairs() -> None:
    """Arrow users have maps, Spark users arrays of structs; both are taken as they are."""
    expected = [[("a", b"1")], None, [("b", b""), ("c", b"2")]]
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    structs = [None if one is None else [{"key": name, "value": value} for name, value in one] for one in expected]
    for given_ in (
        [{"a": b"1"}, None, {"b": b"", "c": b"2"}],
        pa.array(expected, HEADERS_TYPE),
        pa.chunked_array([pa.array(expected[:1], HEADERS_TYPE), pa.array(expected[1:], HEADERS_TYPE)]),
        pa.array([None, *structs], pairs)[1:],
    ):
        assert [one or None for one in headers_column(given_, 3).to_pylist()] == expected
    wrongs: list[object] = [pa.array([1, 2, 3]), pa.array([{"a": 1}] * 3), [{}, {}], "abc", {"a": b""}]
    for wrong in wrongs:
        with pytest.raises(BadArgument, match="headers"):
            headers_column(wrong, 3)
