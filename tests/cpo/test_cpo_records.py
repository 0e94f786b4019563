"""The stored records: their bytes, and that they read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cpo import Lease, PersistenceCluster, _cluster, _lease, _metadata_plog, _root
from penstock.cpo._entry import Entry, whole
from penstock.cpo._root import Root
from penstock.model import PlogId

text = st.text(st.characters(codec="utf-8"), max_size=20)
uids = st.binary(min_size=16, max_size=16).map(bytes.hex)
entries = st.builds(Entry, text, st.integers(0, 2**63 - 1), st.binary(max_size=50))


def test_the_stored_bytes_are_those_of_format_one() -> None:
    """Databases written by this release are read by the next: a change here needs a new format."""
    plog_id = PlogId("c", "g", "0" * 32)
    cluster = PersistenceCluster.of("c", {"h": ["x:1"], "g": ["y:2", "z:3"]})
    assert _lease.encode(Lease("n", "me", 3, 1.5)) == bytes.fromhex("93 a26d65 03 cb3ff8000000000000")
    assert _cluster.encode(cluster) == bytes.fromhex("82 a167 92 a3793a32 a37a3a33 a168 91 a3783a31")
    assert _metadata_plog.encode(plog_id) == b"\xd9\x24c/g/" + b"0" * 32
    assert _root.encode(Root(count=2, digest=300)) == bytes.fromhex("93 01 02 cd012c")
    assert Entry("kv/a", 7, b"value").check == 0x50146BCA


@given(text, text, st.integers(0, 2**63), st.floats(allow_nan=False))
def test_a_lease_reads_back(name: str, owner: str, epoch: int, expires: float) -> None:
    """An epoch that changed on its way through the disk would fence the wrong one."""
    lease = Lease(name, owner, epoch, expires)
    assert _lease.decode(name, _lease.encode(lease)) == lease


@given(st.dictionaries(text, st.lists(text).map(tuple)))
def test_a_cluster_reads_back(groups: dict[str, tuple[str, ...]]) -> None:
    """An address that changed would lead to another server's plogs."""
    cluster = PersistenceCluster("c", groups)
    assert _cluster.decode("c", _cluster.encode(cluster)) == cluster


@given(uids)
def test_a_metadata_plog_reads_back(uid: str) -> None:
    """It is the one pointer from which everything else is found."""
    plog_id = PlogId("c", "g", uid)
    assert _metadata_plog.decode(_metadata_plog.encode(plog_id)) == plog_id


@given(entries)
def test_an_entry_is_whole_only_with_its_own_check(entry: Entry) -> None:
    """The check is what stands between a damaged row and a wrong answer."""
    row = (entry.key, entry.version, entry.value)
    assert whole((*row, entry.check)) == entry
    assert whole((*row, entry.check ^ 1)) is None
    assert whole((*row, None)) is None


@given(entries)
def test_no_byte_moves_between_key_and_value_unnoticed(entry: Entry) -> None:
    """Key and value lie side by side under one checksum, so their border is under it as well."""
    longer_key = Entry(entry.key + "a", entry.version, entry.value)
    longer_value = Entry(entry.key, entry.version, b"a" + entry.value)
    assert longer_key.check != longer_value.check


@given(st.lists(entries))
def test_the_root_adds_up_however_it_was_reached(rows: list[Entry]) -> None:
    """It is kept up to date row by row, and compared with all rows at once."""
    root = Root()
    for row in rows:
        root = root.plus(row)
    assert root == Root.of(rows)
    for row in rows:
        root = root.minus(row)
    assert root == Root()
