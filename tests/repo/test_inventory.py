"""The texts of inventories, revisions and names: what is written can be read again, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument, BadRecord
from penstock.repo import Inventory, InventoryEntry, Ref, RevisionText
from penstock.repo._refs import decode_refs, encode_refs
from penstock.repo._revision import commit_id, join_signature, split_signature

words = st.binary(min_size=1, max_size=8)
components = words.filter(lambda part: part not in (b".", b"..") and not {*b"/\0"} & {*part})
paths = st.lists(components, min_size=1, max_size=3).map(b"/".join)
modes = st.sampled_from([0o100644, 0o100755, 0o120000, 0o160000, 0o100664])
trees = st.dictionaries(paths, st.tuples(modes, words), max_size=6)

_Tree = dict[bytes, tuple[int, bytes]]
GOLDEN = b"""\
100755 r1 old\\x20id a b
120000 r2 line\\nfeed line\\nfeed
160000 r3 \xffz \xffz
100644 r1 \\\\\\x00 \xff\\x7f
"""


def inventory_of(revision: bytes, tree: _Tree) -> Inventory:
    return Inventory(revision).changed(revision, {path: InventoryEntry(*tree[path], path) for path in tree})


def test_golden_bytes() -> None:
    """Inventories are stored for ever, so their bytes never change."""
    entries = {
        b"\xffz": InventoryEntry(0o160000, b"r3", b"\xffz"),
        b"a b": InventoryEntry(0o100755, b"r1", b"old id"),
        b"\xff\x7f": InventoryEntry(0o100644, b"r1", b"\\\0"),
        b"line\nfeed": InventoryEntry(0o120000, b"r2", b"line\nfeed"),
    }
    assert Inventory(b"r").changed(b"r", entries).text == GOLDEN
    read = Inventory(b"r", GOLDEN)
    assert dict(read) == entries
    assert [read[path].kind for path in read] == ["executable", "symlink", "submodule", "file"]
    assert [read.path_of(file_id) for file_id in (b"old id", b"\xffz", b"a b")] == [b"a b", b"\xffz", None]
    assert read[b"a b"].key == (b"texts", b"old id", b"r1")


@given(trees, trees)
def test_inventory_is_read_as_it_was_written(before: _Tree, after: _Tree) -> None:
    """Whatever bytes names have; and the changes from one to another lead from one to the other."""
    old, new = inventory_of(b"r1", before), inventory_of(b"r2", after)
    read = Inventory(b"r2", new.text)
    assert dict(read) == {path: InventoryEntry(*after[path], path) for path in after}
    assert list(read) == sorted(after)
    assert dict(Inventory(b"r2", new.text, like=old)) == dict(read)
    assert (read.text, old.changed(b"r2", new.changes_from(old)).text) == (new.text, new.text)


def test_moved_file_keeps_its_id_and_its_place_can_be_taken() -> None:
    """An id is unique in an inventory, whatever is renamed and comes in its place."""
    first = inventory_of(b"r1", {b"a": (0o100644, b"r1"), b"b": (0o100644, b"r1")})
    moved = first.changed(b"r2", {b"a": None, b"c": first[b"a"]})
    assert (moved.path_of(b"a"), b"a" in moved) == (b"c", False)
    taken = moved.changed(b"r3", {b"a": InventoryEntry(0o100644, b"r3", b"a@r3")})
    assert (taken.path_of(b"a"), taken.path_of(b"a@r3")) == (b"c", b"a")
    again = Inventory(b"r3", taken.text, like=moved)
    assert (again.path_of(b"a"), again.path_of(b"a@r3"), again.path_of(b"b")) == (b"c", b"a", b"b")
    assert Inventory(b"r4", first.text, like=taken).path_of(b"a") == b"a"
    with pytest.raises(BadRecord, match="two files have the id"):
        Inventory(b"r3", moved.text.replace(b"b b", b"a b"), like=moved)
    with pytest.raises(BadRecord, match="two files have the id"):
        Inventory(b"r3", b"100644 r3 a a\n" + moved.text, like=moved)
    swapped = first.changed(b"r2", {b"a": first[b"b"], b"b": first[b"a"]})
    assert (swapped.path_of(b"a"), swapped.path_of(b"b")) == (b"b", b"a")
    for changes in ({b"a": InventoryEntry(0o100644, b"r3", b"a")}, {b"d": InventoryEntry(0o100644, b"r3", b"a")}):
        with pytest.raises(BadRecord, match="two files have the id"):
            moved.changed(b"r3", changes)


@pytest.mark.parametrize(
    "text",
    [
        b"100644 r a ../a\n",
        b"100644 r a /a\n",
        b"100644 r a a//b\n",
        b"100644 r a a/./b\n",
        b"100644 r a a/\n",
        b"100644 r a a\\x00b\n",
        b"100644 r a \n",
        b"100644 r a\n",
        b"100644 r a a",
        b"040000 r a a\n",
        b"100648 r a a\n",
        b"77777777777777777777777 r a a\n",
        b"-00644 r a a\n",
        b"0100644 r a a\n",
        b"100644 r a b\n100644 r a a\n",
        b"100644 r a a\n100644 r a a\n",
        b"100644 r a a\n100644 r a b\n",
        b"100644 r b a\n100644 r b b\n",
        b"100644 r a \\q\n",
        b"100644 r a \\x41\n",
        b"100644 r a a\\\n",
        b"100644  a a\n",
        b"100644 r a a\r\n\n",
    ],
)
def test_bad_inventory_is_refused(text: bytes) -> None:
    """A path that leaves the folder would be written there; a second spelling would be a second file."""
    with pytest.raises(BadRecord, match="invalid record of inventories@r"):
        Inventory(b"r", text)


SIGNED = b"""tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904
parent 1111111111111111111111111111111111111111
author J\xf6rg <j@e> 1700000000 +0130
committer C <> -5 -0000
encoding ISO-8859-1
HG:extra one
 two
gpgsig -----BEGIN PGP SIGNATURE-----
\x20
 abc
 -----END PGP SIGNATURE-----

Gr\xfc\xdfe

gpgsig is no header here
"""


def test_revision_says_who_when_and_why() -> None:
    """Names and message are decoded as the commit says, and the bytes are kept."""
    text, signature = split_signature(SIGNED)
    assert signature == b"-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----"
    assert join_signature(text, signature) == SIGNED
    read = RevisionText.parse(b"r", text)
    assert (read.decoded(read.author.name), read.author.time, read.author.zone) == (
        "Jörg <j@e>",
        1_700_000_000,
        b"+0130",
    )
    assert (read.committer.name, read.committer.time, read.committer.zone) == (b"C <>", -5, b"-0000")
    assert (read.parents, read.header(b"HG:extra")) == ((b"1" * 40,), b"one\ntwo")
    assert read.decoded(read.message).startswith("Grüße\n\ngpgsig is no")
    assert commit_id(b"") == b"dcf5b16e76cce7425d0beaef62d79a7d10fce1f5"
    halves = RevisionText.parse(b"r", text.replace(b"ISO-8859-1", b"utf-7"))
    assert halves.decoded(b"+2AA-") == "+2AA-", "half a character can be neither printed nor stored in a table"
    for encoding in (b"no such", b"hex", b"punycode", b"a\0b"):
        other = RevisionText.parse(b"r", text.replace(b"ISO-8859-1", encoding))
        assert other.decoded(other.message).startswith("Gr\\xfc\\xdfe")
    with pytest.raises(BadRecord, match="no author"):
        RevisionText.parse(b"r", b"hello\n")


@given(st.binary(), st.none() | st.binary(min_size=1).filter(lambda text: b"\n\n" not in text))
def test_signature_that_was_split_off_is_put_back(text: bytes, signature: bytes | None) -> None:
    """A commit whose bytes are not exactly the same has another id."""
    for commit in (text, join_signature(b"tree 1\n\n" + text, signature)):
        assert join_signature(*split_signature(commit)) == commit


@given(st.dictionaries(words, st.builds(Ref, words, st.none() | words.filter(lambda word: word != b"-")), max_size=5))
def test_names_are_read_as_they_were_written(refs: dict[bytes, Ref]) -> None:
    """A branch may have any name that git permits."""
    assert decode_refs((b"refs", b"0"), encode_refs(refs)) == refs


@pytest.mark.parametrize("text", [b"r - b\nr - a\n", b"r - a", b"r a\n", b"r - \\q\n"])
def test_bad_list_of_names_is_refused(text: bytes) -> None:
    """What nobody has written so is damaged."""
    with pytest.raises(BadRecord, match="no list of names"):
        decode_refs((b"refs", b"0"), text)


def test_path_that_is_a_text_is_refused_in_plain_words() -> None:
    """Everybody writes the path as a str first, and the answer was that bytes and str cannot be compared."""
    inventory = Inventory(b"r", GOLDEN)
    text: Any = "a b"
    for ask in (lambda: inventory[text], lambda: inventory.get(text), lambda: text in inventory):
        with pytest.raises(BadArgument, match="invalid path 'a b': paths are bytes"):
            ask()
    assert inventory[b"a b"].git_mode == "100755"
