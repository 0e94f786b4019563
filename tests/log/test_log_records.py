"""Metadata records: their bytes, there and back."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log._records import (
    Chain,
    Doomed,
    Drop,
    Full,
    Incremental,
    Init,
    Lineage,
    Next,
    Packed,
    Record,
    Replace,
    Spares,
    Splice,
    Truncate,
    decode_records,
    encode_records,
)

GOLDEN: Final[list[tuple[Record, str]]] = [
    (Chain([("p", 5)], "n", "s"), "91 94 a5636861696e 91 92a17005 a16e a173"),
    (Spares(["p", "q"]), "91 92 a6737061726573 92 a170 a171"),
    (Init("a", "p", "n", "s"), "91 95 a4696e6974 a161 a170 a16e a173"),
    (Incremental("a", "p", 300, "q", "n"), "91 96 ab696e6372656d656e74616c a161 a170 cd012c a171 a16e"),
    (
        Full("a", True, 7, [("p", 5)], "q", "n", {0: b"l"}),
        "91 98 a466756c6c a161 c3 07 91 92a17005 a171 a16e 8100c4016c",
    ),
    (
        Packed("a", [("c", "g")], b"\0\0\0\0", b"u" * 16, b"\5" + bytes(7), {0: b"l"}),
        f"91 97 a67061636b6564 a161 91 92a163a167 c40400000000 c410{'75' * 16} c4080500000000000000 8100c4016c",
    ),
    (Next("a", "n"), "91 93 a46e657874 a161 a16e"),
    (Truncate("a", "p"), "91 93 a87472756e63617465 a161 a170"),
    (Splice("a", None, "b", 5, "p", "n"), "91 98 a673706c696365 a161 c0 a162 05 a170 a16e c400"),
    (Replace("a", "p", 8, "~merge", 5), "91 96 a77265706c616365 a161 a170 08 a67e6d65726765 05"),
    (Splice("a", 3, "b", 5, "p", "n", b"l"), "91 98 a673706c696365 a161 03 a162 05 a170 a16e c4016c"),
    (Drop("a"), "91 92 a464726f70 a161"),
    (Doomed(["p", "q"]), "91 92 a6646f6f6d6564 92 a170 a171"),
    (Lineage(["p", "q"]), "91 92 a76c696e65616765 92 a170 a171"),
]

texts = st.text(max_size=20)
lengths = st.integers(min_value=0, max_value=2**63 - 1)
sealed = st.lists(st.tuples(texts, lengths), max_size=4)
labels = st.dictionaries(st.integers(0, 3), st.binary(min_size=1, max_size=20), max_size=4)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(Chain, sealed, texts, texts),
    st.builds(Spares, st.lists(texts, max_size=4)),
    st.builds(Init, texts, texts, texts, texts),
    st.builds(Incremental, texts, texts, lengths, texts, texts),
    st.builds(Full, texts, st.booleans(), lengths, sealed, texts, texts, labels),
    st.builds(
        Packed,
        texts,
        st.lists(st.tuples(texts, texts), max_size=2),
        *[st.binary(max_size=20)] * 3,
        labels,
    ),
    st.builds(Next, texts, texts),
    st.builds(Truncate, texts, texts),
    st.builds(Splice, texts, st.none() | lengths, texts, lengths, texts, texts, st.binary(max_size=20)),
    st.builds(Drop, texts),
    st.builds(Doomed, st.lists(texts, max_size=4)),
    st.builds(Lineage, st.lists(texts, max_size=4)),
)


@pytest.mark.parametrize(("record", "stored"), GOLDEN, ids=lambda value: type(value).__name__)
def test_a_record_has_the_bytes_it_always_had(record: Record, stored: str) -> None:
    """Partitions written by this release are read by every later one."""
    assert encode_records([record]) == bytes.fromhex(stored)
    assert decode_records(bytes.fromhex(stored)) == [record]


def test_every_kind_of_record_has_golden_bytes() -> None:
    """A kind that was added without them could change unnoticed."""
    assert {type(record) for record, _ in GOLDEN} == set(Record.__args__)


@given(st.lists(records, max_size=6))
def test_records_come_back_as_they_were_written(written: list[Record]) -> None:
    """One append is any number of records; all of them or none are there."""
    assert decode_records(encode_records(written)) == written


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "c0",
        "80",
        "91",
        "91 90",
        "91 91 a464726f70",  # too few fields
        "91 92 a464726f70 01",  # a number for a name
        "91 92 a464726fff a161",  # a kind that is no text
        "91 92 a464726f71 a161",  # a kind that is none
        "91 92 a464726f70 a161 00",  # something behind
        "91 92 a464726f70 a1ff",  # a name that is no text
        "dd ffffffff",  # four thousand million records
        "91 97 a466756c6c a161 c3 07 91 92a170a170 a171 a16e",  # a text for a length
    ],
)
def test_bytes_that_no_penstock_wrote_are_refused(stored: str) -> None:
    """ValueError is what recovery turns into a clear error; anything else would be a crash."""
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own, of several classes
        decode_records(bytes.fromhex(stored))


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_is_records(garbage: bytes) -> None:
    """The checksum keeps garbage away; should it come all the same, it must not get further than this."""
    try:
        found = decode_records(garbage)
    except ValueError:
        return
    assert isinstance(found, list)


@given(records, st.data())
def test_a_record_cut_short_is_refused(record: Record, data: st.DataObject) -> None:
    """Half a record says something else, or nothing."""
    stored = encode_records([record])
    with pytest.raises(ValueError):  # noqa: PT011
        decode_records(stored[: data.draw(st.integers(0, len(stored) - 1))])
