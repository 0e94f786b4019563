"""The bytes of each kind, and records that are damaged, or made to do damage."""

from __future__ import annotations

import hashlib
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.errors import BadArgument, BadRecord, MissingBasis, NoSuchKey
from penstock.repo.kinds import KINDS, annotate, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

Key = tuple[bytes, ...]

R1: Final = (b"file", b"r1")
R2: Final = (b"file", b"r2")
R3: Final = (b"file", b"r3")
GHOST: Final = (b"file", b"ghost")
TEXTS: Final[dict[Key, bytes]] = {
    R1: b"alpha\nbeta\ngamma\n",
    R2: b"alpha\nBETA\ngamma\ndelta",
    R3: b"x\nalpha\nBETA\ngamma\ndelta\nend r3\n",
}
PARENTS: Final[dict[Key, tuple[Key, ...]]] = {R1: (), R2: (R1,), R3: (R2, R1)}
SHA: Final = {key: hashlib.sha1(text).hexdigest().encode() for key, text in TEXTS.items()}
GOLDEN: Final[dict[str, tuple[bytes, dict[str, Any] | None]]] = {
    "mpdiff": (b"c 0 0 0 1\ni 1\nBETA\n\nc 0 2 2 1\ni 1\ndelta\n", None),
    "knit-annotated-ft": (
        b"version r2 4 %b\nr1 alpha\nr2 BETA\nr1 gamma\nr2 delta\nend r2\n" % SHA[R2],
        {"noeol": True},
    ),
    "knit-annotated-delta": (
        b"version r2 4 %b\n1,2,1\nr2 BETA\n3,3,1\nr2 delta\nend r2\n" % SHA[R2],
        {"noeol": True},
    ),
    "knit-ft": (b"version r2 4 %b\nalpha\nBETA\ngamma\ndelta\nend r2\n" % SHA[R2], {"noeol": True}),
    "knit-delta": (b"version r2 4 %b\n1,2,1\nBETA\n3,3,1\ndelta\nend r2\n" % SHA[R2], {"noeol": True}),
    "fulltext": (b"alpha\nBETA\ngamma\ndelta", None),
}


def decoded(
    kind: str,
    data: bytes | memoryview,
    compressor_data: dict[str, Any] | None,
    *,
    key: Key = R2,
    parents: Sequence[Key] | None = None,
) -> bytes:
    return decode(
        kind,
        data,
        key=key,
        parents=PARENTS[key] if parents is None else parents,
        compressor_data=compressor_data,
        get_text=TEXTS.__getitem__,
    )


def encoded(kind: str, *, key: Key = R2, parents: Sequence[Key] | None = None) -> tuple[bytes, dict[str, Any] | None]:
    return encode(
        kind, TEXTS[key], key=key, parents=PARENTS[key] if parents is None else parents, get_text=TEXTS.__getitem__
    )


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_a_kind_are_these(kind: str) -> None:
    """Repositories of others hold these bytes, and streams carry them to programs that we do not know."""
    assert encoded(kind) == GOLDEN[kind]
    assert decoded(kind, *GOLDEN[kind]) == TEXTS[R2]
    assert decoded(kind, memoryview(GOLDEN[kind][0]), GOLDEN[kind][1]) == TEXTS[R2]


def test_golden_bytes_are_of_all_kinds() -> None:
    """The seed has six, under these names."""
    assert tuple(GOLDEN) == KINDS


def test_mpdiff_copies_from_every_parent() -> None:
    """What comes from the other side of a merge is stored once."""
    data, _ = encoded("mpdiff", key=R3)
    assert data == b"i 1\nx\n\nc 0 0 1 3\ni 2\ndelta\nend r3\n\n"
    data, _ = encode("mpdiff", b"beta\ngamma\ndelta", key=R3, parents=(R2, R1), get_text=TEXTS.__getitem__)
    assert data == b"c 1 1 0 2\nc 0 3 2 1\n"


def test_mpdiff_with_a_parent_that_is_not_there_counts_it() -> None:
    """A parent may be missing on one side and known on the other; its number has to be the same on both."""
    data, _ = encoded("mpdiff", parents=(GHOST, R1))
    assert data.startswith(b"c 1 0 0 1\n")
    assert decoded("mpdiff", data, None, parents=(GHOST, R1)) == TEXTS[R2]
    with pytest.raises(MissingBasis) as error:
        decoded("mpdiff", b"c 0 0 0 1\n", None, parents=(GHOST, R1))
    assert (error.value.key, error.value.basis) == (R2, GHOST)


@pytest.mark.parametrize("kind", ["knit-delta", "knit-annotated-delta"])
def test_delta_on_a_text_that_is_not_there_names_it(kind: str) -> None:
    """The reader has to know what to ask for; a store raises an error of its own for a key that it lacks."""

    def get_text(key: Key) -> bytes:
        raise NoSuchKey(key)

    for call in (
        lambda: decode(
            kind, *GOLDEN[kind][:1], key=R2, parents=(GHOST,), compressor_data={"noeol": True}, get_text=get_text
        ),
        lambda: encode(kind, b"", key=R2, parents=(GHOST,), get_text=get_text),
    ):
        with pytest.raises(MissingBasis) as error:
            call()
        assert (error.value.key, error.value.basis) == (R2, GHOST)
    with pytest.raises(BadArgument, match="no parent"):
        encoded(kind, parents=())
    with pytest.raises(BadRecord, match="without a parent"):
        decoded(kind, *GOLDEN[kind], parents=())


def test_lines_have_their_parent_as_origin_unless_its_origins_are_known() -> None:
    """A caller without a history still gets a record that Breezy reads."""
    origins_of = partial(annotate, TEXTS[R3], key=R3, parents=(R2, GHOST), get_text=TEXTS.__getitem__)
    assert origins_of() == [b"r3", b"r2", b"r2", b"r2", b"r3", b"r3"]
    origins: dict[Key, list[bytes]] = {R2: [b"r1", b"r2", b"r1", b"r2"]}
    assert origins_of(get_annotations=origins.__getitem__) == [b"r3", b"r1", b"r2", b"r1", b"r3", b"r3"]
    with pytest.raises(BadArgument, match="1 origins for the 4 lines"):
        origins_of(get_annotations=lambda _: [b"r1"])
    with pytest.raises(BadArgument, match="invalid version b'r 1'"):
        encode(
            "knit-annotated-ft",
            TEXTS[R3],
            key=R3,
            parents=(R2,),
            get_text=TEXTS.__getitem__,
            get_annotations=lambda _: [b"r 1"] * 4,
        )


@pytest.mark.parametrize("version", [b"", b" ", b"a b", b"a\n", b"\ta", b"a\x0bb"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("knit")])
def test_version_with_whitespace_has_no_knit_record(kind: str, version: bytes) -> None:
    """The first line of a record is split at spaces: the record would be read as that of another version."""
    for key in ((version,), (b"file", version)):
        with pytest.raises(BadArgument, match=r"invalid (version|key)"):
            encode(kind, b"a\n", key=key, parents=(R1,), get_text=TEXTS.__getitem__)
        with pytest.raises(BadArgument, match=r"invalid (version|key)"):
            decoded(kind, GOLDEN[kind][0], {"noeol": False}, key=key, parents=(R1,))


def knit(body: bytes, lines: int, *, version: bytes = b"r2", end: bytes = b"end r2\n") -> bytes:
    return b"version %b %d %b\n%b%b" % (version, lines, SHA[R2], body, end)


FT: Final = b"alpha\nBETA\ngamma\ndelta\n"
DELTA: Final = b"1,2,1\nBETA\n3,3,1\ndelta\n"
HUGE: Final = b"9" * 18


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("knit-ft", b"", "its header is not"),
        ("knit-ft", b"\n" * 100, "its header is not"),
        ("knit-ft", knit(FT, 4, version=b"r3"), "its header is not"),
        ("knit-ft", knit(FT, 4).replace(b" 4 ", b" +4 "), "its header is not"),
        ("knit-ft", knit(FT, 4).replace(b" 4 ", b"  4 "), "its header is not"),
        ("knit-ft", knit(FT, 4).replace(SHA[R2], SHA[R2].upper()), "its header is not"),
        ("knit-ft", knit(FT, 4).replace(b" 4 ", b" 9" + HUGE + b" "), "its header is not"),
        ("knit-ft", knit(FT, 3), "its header says 3 lines, and it has 4"),
        ("knit-ft", knit(FT, int(HUGE)), "its header says 9+ lines, and it has 4"),
        ("knit-ft", knit(FT, 4, end=b"end r3\n"), "its last line is not b'end r2'"),
        ("knit-ft", knit(FT, 4, end=b"end r2"), "its last line is not b'end r2'"),
        ("knit-ft", knit(FT, 4) + b"\n", "its last line is not b'end r2'"),
        ("knit-ft", knit(FT, 4) + b"end r2\n", "its header says 4 lines, and it has 5"),
        ("knit-ft", knit(FT[:-1], 4), "on a line of its own"),
        ("knit-ft", knit(FT.upper(), 4), "the text has the sha1"),
        ("knit-ft", knit(b"", 0), "cannot be noeol"),
        ("knit-annotated-ft", knit(b"r1 alpha\nBETA\n", 2), "a line has no origin"),
        ("knit-annotated-ft", knit(b" alpha\n", 1), "a line has no origin"),
        ("knit-delta", knit(DELTA.replace(b"3,3", b"3,4"), 4), "goes past the 3 lines of the parent"),
        ("knit-delta", knit(DELTA.replace(b"3,3", HUGE + b"," + HUGE), 4), "goes past the 3 lines of the parent"),
        ("knit-delta", knit(DELTA.replace(b"3,3", b"1,3"), 4), "is out of order: the one before it ends at 2"),
        ("knit-delta", knit(DELTA.replace(b"3,3", b"3,2"), 4), "is out of order"),
        ("knit-delta", knit(DELTA.replace(b"3,3,1", b"3,3,2"), 4), "has more lines than the record"),
        ("knit-delta", knit(DELTA.replace(b"3,3,1", b"3,3," + HUGE), 4), "has more lines than the record"),
        ("knit-delta", knit(DELTA.replace(b"3,3,1", b"3,3,0"), 4), "line 4 is not a hunk"),
        ("knit-delta", knit(DELTA.replace(b"1,2,1", b"1,2, 1"), 4), "line 1 is not a hunk"),
        ("knit-delta", knit(DELTA.replace(b"1,2,1", b"-1,2,1"), 4), "line 1 is not a hunk"),
        ("knit-delta", knit(DELTA, 5), "its header says 5 lines, and it has 4"),
        ("knit-delta", knit(DELTA.lower(), 4), "the text has the sha1"),
        ("knit-annotated-delta", knit(DELTA, 4), "a line has no origin"),
        ("mpdiff", b"c 0 0 0 1", "its last line has no newline"),
        ("mpdiff", b"c 1 0 0 1\n", "it copies from parent 1, and has 1"),
        ("mpdiff", b"c " + HUGE + b" 0 0 1\n", "it copies from parent 9+, and has 1"),
        ("mpdiff", b"c 0 2 0 2\n", "it copies lines 2 to 4 of parent 0, of which lines 0 to 3 are left"),
        ("mpdiff", b"c 0 0 0 " + HUGE + b"\n", "it copies lines 0 to 9+ of parent 0"),
        ("mpdiff", b"c 0 0 0 0\n", "it copies lines 0 to 0"),
        ("mpdiff", b"c 0 0 0 2\nc 0 1 2 1\n", "it copies lines 1 to 2 of parent 0, of which lines 2 to 3 are left"),
        ("mpdiff", b"c 0 0 1 1\n", "it copies to line 1 of the text, and line 0 is next"),
        ("mpdiff", b"c 0 0 0 -1\n", "its line 1 is not a hunk"),
        ("mpdiff", b"i 0\n\n", "it inserts 0 lines"),
        ("mpdiff", b"i 3\na\nb\n", "it inserts 3 lines, and 2 follow"),
        ("mpdiff", b"i " + HUGE + b"\na\n", "it inserts 9+ lines, and 1 follow"),
        ("mpdiff", b"i 1\n\n", "an empty line without a newline"),
        ("mpdiff", b"i 2\na\n\n", "an empty line without a newline"),
        ("mpdiff", b"i 1\na\nc 0 0 1 1\n", "line 1 of the text has no newline, and is not the last one"),
        ("mpdiff", b"i 1\na\n\n\n", "its line 4 is not a hunk"),
        ("mpdiff", b"\n", "its line 1 is not a hunk"),
        ("weave", b"", "unknown storage kind 'weave': the kinds are mpdiff"),
    ],
)
def test_bad_record_is_refused_by_name_before_anything_is_allocated(kind: str, data: bytes, reason: str) -> None:
    """Records come from others, over a network; what they say about themselves is checked, not believed."""
    tracemalloc.start()
    try:
        with pytest.raises(BadRecord, match=reason) as error:
            decoded(kind, data, {"noeol": True} if "knit" in kind else None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.value.key == R2
    assert peak < 1 << 20


def test_parents_named_often_do_not_become_a_text_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand times the same parent, twice in a row, would be a hundred gigabytes of a kilobyte."""
    monkeypatch.setattr("penstock.repo.kinds._mpdiff.TEXT_SIZE_MAX", 100)
    copies = b"".join(b"c %d 0 %d 3\n" % (number, 3 * number) for number in range(7))
    assert decoded("mpdiff", copies[: copies.index(b"c 5 ")], None, parents=[R1] * 7) == 5 * TEXTS[R1]
    with pytest.raises(BadRecord, match="more than 100 bytes"):
        decoded("mpdiff", copies, None, parents=[R1] * 7)


def test_copy_of_a_last_line_without_newline_ends_the_text() -> None:
    """Otherwise two lines would become one, and all that follows would be counted wrong."""
    assert decoded("mpdiff", b"c 0 3 0 1\n", None, parents=(R2,)) == b"delta"
    with pytest.raises(BadRecord, match="line 1 of the text has no newline"):
        decoded("mpdiff", b"c 0 3 0 1\ni 1\na\n\n", None, parents=(R2,))


@pytest.mark.parametrize("compressor_data", [None, {}, {"noeol": 1}, {"noeol": None}, {"noeol": True, "x": 1}])
def test_knit_record_needs_to_know_about_the_last_newline(compressor_data: dict[str, Any] | None) -> None:
    """A guess would add a newline to a text, or take one from it; the other kinds have nothing to say."""
    with pytest.raises(BadRecord, match="compressor data"):
        decoded("knit-ft", GOLDEN["knit-ft"][0], compressor_data)
    with pytest.raises(BadRecord, match="compressor data"):
        decoded("mpdiff", b"", {"noeol": False})


def test_unknown_kind_cannot_be_encoded() -> None:
    """The message has the names that would do."""
    with pytest.raises(BadArgument, match="use one of mpdiff, knit-annotated-ft"):
        encoded("knit-ft-gz")


@pytest.mark.parametrize("kind", KINDS)
def test_only_bytes_are_encoded(kind: str) -> None:
    """A str that was taken as it is would fail in another program, far from the mistake."""
    with pytest.raises(BadArgument, match="invalid text 'alpha': use a value of type bytes"):
        encode(kind, "alpha", key=R2, parents=(R1,), get_text=TEXTS.__getitem__)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_damage_never_becomes_another_text_unnoticed(kind: str) -> None:
    """Knits have the sha1 of the text; of the others, at least what they say about lines is checked."""
    data, compressor_data = GOLDEN[kind]
    damaged = [data[:size] for size in range(len(data))]
    damaged += [data[:n] + bytes([data[n] ^ bit]) + data[n + 1 :] for n in range(len(data)) for bit in (1, 16, 128)]
    for content in damaged:
        try:
            text = decoded(kind, content, compressor_data)
        except BadRecord:
            continue
        assert text == TEXTS[R2] or not kind.startswith("knit")
