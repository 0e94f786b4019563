"""Breezy reads what we make, and we read what Breezy makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BadRecord
from penstock.repo.kinds import annotate, decode, encode
from tests.repo.breezy_oracle import BreezyRecord, Oracle, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

AWKWARD: Final = [
    b"",
    b"\n",
    b"\n\n",
    b"a",
    b"a\nb",
    b"a\nb\n",
    b"b\na",
    b"\r",
    b"a\r\nb\rc\n",
    b"\0",
    b"a\0\n\0\n\0",
    b"\xff\xfe\n\x80",
    b"version r1 1 da39a3ee5e6b4b0d3255bfef95601890afd80709\nend r1\n",
    b"end r1\nend r2\nend r3",
    b"1,2,1\n0,0,9\n",
    b"c 0 0 0 1\ni 1\n\nc 1 1 1 1\n",
    b"i 1\n\n",
    b" leading\n  \n",
    b"x\n" * 50,
    b"x\n" * 49 + b"x",
    b"x" * 100_000 + b"\ny",
]
LINE: Final = st.sampled_from([b"", b"a", b"b", b"c", b"\r", b"end r1", b"1,1,1", b"c 0 0 0 1", b"i 1", b"\0", b" "])


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    """Return a few texts; each has one or two of the earlier ones as parents, and much in common with the first."""
    history: list[Version] = []
    for number in range(draw(st.integers(1, 6))):
        parents = draw(st.lists(st.sampled_from(history), max_size=2, unique=True)) if history else []
        lines = parents[0].text.split(b"\n") if parents else []
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(0, len(lines)))
            lines[start : start + draw(st.integers(0, 2))] = draw(st.lists(LINE, max_size=4))
        text = b"\n".join(lines) + draw(st.sampled_from([b"", b"\n"]))
        history.append(Version(b"r%d" % number, tuple(parent.name for parent in parents), text))
    return history


def awkward_chain() -> list[Version]:
    """Return a history in which texts follow from others that are quite different, and from two of them."""
    texts = [*AWKWARD, *AWKWARD[::-1], *AWKWARD[::3], *AWKWARD[::-5]]
    names = [b"r%d" % number for number in range(len(texts))]
    parents = [(), *((names[i - 1],) if i % 3 else (names[i - 1], names[i // 2]) for i in range(1, len(texts)))]
    return [Version(*row) for row in zip(names, parents, texts, strict=True)]


def is_annotated(kind: str) -> bool:
    return "annotated" in kind


def encode_history(kind: str, history: Sequence[Version]) -> list[BreezyRecord]:
    """Return a history in records of one kind, or full texts where there is no parent."""
    texts = {version.key: version.text for version in history}
    annotations: dict[tuple[bytes, ...], list[bytes]] = {}
    records = []
    for version in history:
        used = kind if version.parents else kind.replace("delta", "ft")
        data, compressor_data = encode(
            used,
            version.text,
            key=version.key,
            parents=version.parent_keys,
            get_text=texts.__getitem__,
            get_annotations=annotations.__getitem__,
        )
        assert compressor_data is not None
        annotations[version.key] = annotate(
            version.text,
            key=version.key,
            parents=version.parent_keys,
            get_text=texts.__getitem__,
            get_annotations=annotations.__getitem__,
        )
        records.append(BreezyRecord(used, version, compressor_data["noeol"], data))
    return records


def check_knits(breezy: Oracle, history: Sequence[Version]) -> None:
    texts = {version.key: version.text for version in history}
    for annotated in (False, True):
        for record in breezy.make(history, annotated=annotated):
            text = decode(
                record.kind,
                record.data,
                key=record.version.key,
                parents=record.version.parent_keys,
                compressor_data={"noeol": record.noeol},
                get_text=texts.__getitem__,
            )
            assert text == record.version.text
    for kind in ("knit-ft", "knit-delta", "knit-annotated-ft", "knit-annotated-delta"):
        assert breezy.read(encode_history(kind, history), annotated=is_annotated(kind)) == [v.text for v in history]


def check_mpdiffs(breezy: Oracle, history: Sequence[Version]) -> None:
    texts = {version.key: version.text for version in history}
    for version in history:
        parents = [texts[parent] for parent in version.parent_keys]
        theirs = breezy.diff(version.text, parents)
        ours, _ = encode(
            "mpdiff", version.text, key=version.key, parents=version.parent_keys, get_text=texts.__getitem__
        )
        assert breezy.patch(ours, parents) == version.text
        for data in (ours, theirs):
            text = decode(
                "mpdiff",
                data,
                key=version.key,
                parents=version.parent_keys,
                compressor_data=None,
                get_text=texts.__getitem__,
            )
            assert text == version.text


def test_awkward_texts_are_read_on_both_sides(breezy: Oracle) -> None:
    """A text with CR, NUL, no final newline, or lines as records have them, is where two readers disagree first."""
    check_knits(breezy, awkward_chain())
    check_mpdiffs(breezy, awkward_chain())


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_any_history_is_read_on_both_sides(breezy: Oracle, history: list[Version]) -> None:
    """Nobody lists all the ways in which a text can differ from its parents."""
    check_knits(breezy, history)
    check_mpdiffs(breezy, history)


def test_long_chain_of_deltas_is_read_on_both_sides(breezy: Oracle) -> None:
    """Each delta builds on the text before it, so a slip in one of them breaks all that follow."""
    lines = [b"line %d\n" % number for number in range(40)]
    history: list[Version] = []
    for number in range(150):
        lines[number * 7 % 40] = b"line of %d\n" % number
        parents = (b"r%d" % (number - 1),) if number else ()
        history.append(Version(b"r%d" % number, parents, b"".join(lines)))
    assert {record.kind for record in breezy.make(history, annotated=False)} == {"knit-ft", "knit-delta"}
    check_knits(breezy, history)


def test_annotated_records_are_those_of_breezy(breezy: Oracle) -> None:
    """Whoever reads the origin of a line from a record has to find the one that Breezy would write."""
    history = [
        Version(b"r1", (), b"one\ntwo\nthree\nfour\n"),
        Version(b"r2", (b"r1",), b"one\n2\nthree\nfour\n"),
        Version(b"r3", (b"r1",), b"zero\none\ntwo\nthree\nfour\nfive"),
        Version(b"r4", (b"r2", b"r3"), b"zero\none\n2\nthree\nmerged\nfour\nfive"),
        Version(b"r5", (b"r4",), b"zero\none\n2\nthree\nmerged\nfour\nfive\n"),
        Version(b"r6", (b"r3", b"r5", b"r2"), b"zero\none\n2\ntwo\nfour\nfive\n"),
        Version(b"r7", (b"r6",), b""),
    ]
    for kind, chain in (("knit-annotated-ft", 0), ("knit-annotated-delta", 200)):
        theirs = breezy.make(history, annotated=True, chain=chain)
        ours = encode_history(kind, history)
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.kind == b.kind]
        assert len(pairs) >= 3
        assert [a.data for a, _ in pairs] == [b.data for _, b in pairs]


def test_hunk_past_the_end_that_breezy_takes_is_refused(breezy: Oracle) -> None:
    """A record that does not fit its parent is damaged, even if the text happens to come out right."""
    first, second = Version(b"r1", (), b"a\nb\n"), Version(b"r2", (b"r1",), b"a\n")
    (record, delta) = encode_history("knit-delta", [first, second])
    damaged = BreezyRecord(delta.kind, second, delta.noeol, delta.data.replace(b"1,2,0", b"1,9,0"))
    assert breezy.read([record, damaged], annotated=False) == [first.text, second.text]
    with pytest.raises(BadRecord, match="goes past the 2 lines"):
        decode(
            delta.kind,
            damaged.data,
            key=second.key,
            parents=second.parent_keys,
            compressor_data={"noeol": False},
            get_text={first.key: first.text}.__getitem__,
        )
