"""The table of writers: what is remembered, what is handed on, and what is known to be durable."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamCorrupt, WriterForgotten
from penstock.plog import APPEND_SIZE_MAX
from penstock.stream.format._block import BLOCK_HEADER_SIZE, NO_WRITER, WRITERS, StreamBlockHeader, read_header
from penstock.stream.segment._writer_table import (
    ANONYMOUS_MAX,
    ENTRIES_MAX,
    Inherited,
    WriterEntry,
    WriterTable,
    anonymous_hash,
    check_exact,
    durable_number,
    highest_number,
    inherit,
    writer_hash,
)

W1: Final = writer_hash("w1")
W2: Final = writer_hash("w2")
NUMBERS = st.integers(0, 2**64 - 1)
PARTS = st.integers(0, 2**16 - 1)
KEY_MARKS = st.floats(0, 1)
TABLES = st.builds(
    WriterTable,
    own=st.dictionaries(
        st.binary(min_size=16, max_size=16), st.builds(WriterEntry, NUMBERS, NUMBERS, NUMBERS, PARTS), max_size=5
    ),
    inherited=st.lists(
        st.builds(
            Inherited, st.binary(min_size=16, max_size=16), NUMBERS, NUMBERS, NUMBERS, PARTS, KEY_MARKS, KEY_MARKS
        ),
        max_size=5,
    ),
)


def block(writer: bytes, last: int, *, whole: int | None = None, floor: int = 0, parts: int = 1) -> StreamBlockHeader:
    """Return the header of a block; by default the only one of its flush."""
    whole = last if whole is None else whole
    return StreamBlockHeader(
        count=1, time_ms=0, writer=writer, last_number=last, flush_last=whole, durable_floor=floor, flush_segments=parts
    )


def table_of(*headers: StreamBlockHeader) -> WriterTable:
    table = WriterTable()
    for header in headers:
        table.note(header)
    return table


def unpacked(data: bytes) -> WriterTable:
    view = memoryview(data)
    return WriterTable.unpack(read_header(view, where="here", start=7), view, where="here", start=7)


def test_a_writer_is_named_by_a_hash_that_never_changes() -> None:
    """It stands in every block; another one would make every writer unknown."""
    assert writer_hash("w1").hex() == "87e637370b4957ecd43efe7fd11db6c0"
    assert len(writer_hash("x" * 255)) == len(NO_WRITER)


def test_a_table_is_stored_as_documented() -> None:
    """It stands in segments on disk."""
    table = WriterTable(
        {bytes(range(16)): WriterEntry(last_number=1, flush_last=2, durable_floor=3, flush_segments=4)},
        [Inherited(bytes(range(16, 32)), 5, 6, 7, 8, low=0.25, high=0.5)],
    )
    data = table.pack(time_ms=9, events=7)
    header = read_header(memoryview(data), where="here", start=0)
    assert (header.kind, header.count, header.time_ms, header.before) == (WRITERS, 1, 9, 7)
    own = "000102030405060708090a0b0c0d0e0f 0000000000000001 0000000000000002 0000000000000003 0004000000000000"
    rest = "101112131415161718191a1b1c1d1e1f 0000000000000005 0000000000000006 0000000000000007 0008000000000000"
    part = "3fd0000000000000 3fe0000000000000"
    assert data[BLOCK_HEADER_SIZE:] == bytes.fromhex(own + rest + part)


@given(TABLES)
def test_a_table_comes_back_as_it_was(table: WriterTable) -> None:
    """With the order of its writers, because who was silent for longest is forgotten first."""
    found = unpacked(table.pack(time_ms=0, events=0))
    assert found == table
    assert list(found.own) == list(table.own)


@pytest.mark.parametrize("change", [1, -1, 16, -48])
def test_a_table_of_the_wrong_size_is_refused(change: int) -> None:
    """What no Penstock writes is damage: a guess could take a new event for an old one."""
    data = table_of(block(W1, 1)).pack(0, 0)
    changed = data + bytes(change) if change > 0 else data[:change]
    with pytest.raises(StreamCorrupt, match="here at byte 7"):
        unpacked(changed)


def test_the_largest_table_fits_into_one_append() -> None:
    """It is written like any block."""
    full = WriterTable(
        {number.to_bytes(16): WriterEntry(1, 1, 1, 1) for number in range(ENTRIES_MAX)},
        [Inherited(number.to_bytes(16), 1, 1, 1, 1, 0.0, 1.0) for number in range(ENTRIES_MAX)],
        {anonymous_hash(str(number)): WriterEntry(1, 1, 1, 1) for number in range(ANONYMOUS_MAX)},
    )
    assert len(full.pack(0, 0)) <= APPEND_SIZE_MAX


def test_a_writer_without_an_id_leaves_no_trace() -> None:
    """No writer could ask for it again."""
    assert table_of(StreamBlockHeader(count=5, time_ms=0)).own == {}


def test_the_last_block_of_a_writer_counts() -> None:
    """An event whose number is not above its last is there already."""
    table = table_of(block(W1, 5), block(W2, 90), block(W1, 8))
    assert table.last(W1, 0.5) == table.last(W1, None) == 8
    assert table.last(W2, 0.5) == 90
    assert table.last(writer_hash("nobody"), 0.5) == 0


def test_a_floor_below_the_last_number_hides_no_event() -> None:
    """It is stored behind events of a flush that did not get through, which are there all the same."""
    floor = StreamBlockHeader(count=0, writer=W1, last_number=4, flush_last=4, durable_floor=4)
    table = table_of(block(W1, 9, whole=10, floor=3, parts=2), floor)
    assert table.last(W1, 0.5) == 9
    assert durable_number(W1, [table]) == 4
    assert highest_number(W1, [table]) == 10


def test_who_was_silent_for_longest_is_forgotten_first() -> None:
    """A table is bounded; who wrote a moment ago is the most likely to send something again."""
    table = table_of(*(block(number.to_bytes(16), 1) for number in range(1, ENTRIES_MAX + 1)))
    table.note(block((1).to_bytes(16), 2))
    table.note(block(W1, 1))
    assert len(table.own) <= ENTRIES_MAX
    assert table.last((1).to_bytes(16), None) == 2
    assert table.last((2).to_bytes(16), None) == 0
    assert table.last((1000).to_bytes(16), None) == table.last(W1, None) == 1


def test_a_writer_with_an_owner_is_not_forgotten_for_others() -> None:
    """A user who makes up ids, or a program in the folder, would have what another sends again stored twice."""
    table = table_of(block(W1, 7))
    for number in range(1, 2 * ENTRIES_MAX):
        table.note(block(number.to_bytes(16), 1), lambda: {W1: "anna"})
    assert len(table.own) <= ENTRIES_MAX
    assert table.last(W1, 0.5) == 7


def test_writers_without_an_id_push_out_no_writer_with_one() -> None:
    """Else any client could have the numbers of another forgotten, and what that one sends again stored twice."""
    table = table_of(block(W1, 7), *(block(anonymous_hash(str(number)), 1) for number in range(ENTRIES_MAX + 100)))
    assert table.last(W1, 0.5) == 7
    assert len(table.anonymous) <= ANONYMOUS_MAX
    assert table.get(anonymous_hash(str(ENTRIES_MAX + 99))) is not None
    found = unpacked(table.pack(time_ms=0, events=0))
    assert found == table
    assert list(found.anonymous) == list(table.anonymous)
    assert [one.writer for one in inherit([(0.0, 1.0, found)], low=0.0, high=1.0).inherited] == [W1]


def test_a_writer_without_an_id_never_has_the_hash_of_one_with_an_id() -> None:
    """The hash is what numbers are kept under; it tells readers of a block nothing that opens the writer again."""
    assert anonymous_hash("secret").hex() == "616e6f6ea0f8da67c9a914b30b9e2be1"
    assert len(anonymous_hash("secret")) == len(NO_WRITER)
    assert not writer_hash("secret").startswith(b"anon")


def test_both_parts_of_a_split_know_what_was_written_before() -> None:
    """An event that is sent again after the split must find itself, whichever part its key is in now."""
    before = table_of(block(W1, 7))
    low, high = (inherit([(0.0, 1.0, before)], low=a, high=b) for a, b in ((0.0, 0.5), (0.5, 1.0)))
    assert low.last(W1, 0.2) == high.last(W1, 0.7) == 7
    assert low.own == high.own == {}


def test_a_merge_does_not_hide_a_number_that_only_one_side_has() -> None:
    """A flush reached one segment and not the other: what the other lacks must be taken when it is sent again."""
    low, high = table_of(block(W1, 10)), table_of(block(W1, 5))
    merged = inherit([(0.0, 0.5, low), (0.5, 1.0, high)], low=0.0, high=1.0)
    assert merged.last(W1, 0.2) == 10
    assert merged.last(W1, 0.7) == 5
    merged.note(block(W1, 8))
    assert merged.last(W1, 0.2) == 10
    assert merged.last(W1, 0.7) == 8


def test_what_a_merged_segment_inherited_goes_on_to_the_next() -> None:
    """Two changes may come before the writer sends again."""
    low, high = table_of(block(W1, 10)), table_of(block(W1, 5))
    merged = inherit([(0.0, 0.5, low), (0.5, 1.0, high)], low=0.0, high=1.0)
    last = inherit([(0.0, 1.0, merged)], low=0.25, high=0.75)
    assert last.last(W1, 0.3) == 10
    assert last.last(W1, 0.6) == 5


def test_what_was_inherited_is_dropped_once_the_writer_has_written_more() -> None:
    """Or tables would grow with every change of segments."""
    merged = inherit([(0.0, 1.0, table_of(block(W1, 10)))], low=0.0, high=1.0)
    merged.note(block(W1, 11))
    after = inherit([(0.0, 1.0, merged)], low=0.0, high=1.0)
    assert [one.last_number for one in after.inherited] == [11]


def test_a_key_outside_of_what_was_inherited_finds_nothing() -> None:
    """Its predecessor is another one."""
    table = inherit([(0.0, 0.5, table_of(block(W1, 10)))], low=0.0, high=1.0)
    assert table.last(W1, 0.5) == 0
    assert table.last(W1, None) == 0


def test_a_merge_of_full_tables_forgets_who_was_silent_for_longest() -> None:
    """Not all writers of one side: those who write now are the last of both."""
    sides = [
        table_of(*(block((side << 64 | number).to_bytes(16), 1) for number in range(1, ENTRIES_MAX + 1)))
        for side in (1, 2)
    ]
    older = inherit([(0.0, 0.5, table_of(block(W1, 3)))], low=0.0, high=0.5)
    older.own = sides[0].own
    merged = inherit([(0.0, 0.5, older), (0.5, 1.0, sides[1])], low=0.0, high=1.0)
    assert len(merged.inherited) == ENTRIES_MAX
    kept = {one.writer for one in merged.inherited}
    for side in (1, 2):
        assert (side << 64 | ENTRIES_MAX).to_bytes(16) in kept
        assert (side << 64 | 1).to_bytes(16) not in kept
    assert W1 not in kept


QUARTERS: Final = [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]


def merged_quarters(*blocks: StreamBlockHeader, owners: dict[bytes, str], flood: int) -> WriterTable:
    """Return the table of four segments that were merged: one of these blocks in each, and of so many other writers."""
    tables = [table_of(one) for one in blocks]
    for quarter, table in enumerate(tables):
        for number in range(1, flood + 1):
            table.note(block(number.to_bytes(16), 1 + quarter, whole=4, parts=0))
    owners |= {number.to_bytes(16): "berta" for number in range(1, flood + 1)}
    before = [(low, high, table) for (low, high), table in zip(QUARTERS, tables, strict=True)]
    return inherit(before, low=0.0, high=1.0, owners=lambda: owners)


@pytest.mark.parametrize("arrived", [4, 3])
def test_a_user_who_makes_up_ids_pushes_no_other_writer_out_of_a_merge(arrived: int) -> None:
    """Each id had an entry per segment: 4,400 of them pushed out others, whose events were then stored twice."""
    flush = [block(W1, 10 - quarter, whole=10, floor=4, parts=4) for quarter in range(arrived)]
    missing = [block(W1, 4, whole=4, floor=4, parts=1)] * (4 - arrived)
    merged = merged_quarters(*flush, *missing, owners={W1: "anna"}, flood=4400)
    assert len(merged.inherited) <= ENTRIES_MAX
    check_exact(W1, [merged])
    assert durable_number(W1, [merged]) == (10 if arrived == 4 else 4)
    assert (merged.last(W1, 0.8) >= 7) == (arrived == 4)
    assert {one.writer for one in merged.inherited} >= {number.to_bytes(16) for number in range(1, 4401)}


def test_a_writer_that_is_not_known_exactly_is_refused() -> None:
    """It would store events twice, or take new ones for stored ones; the error says from where to look."""
    merged = merged_quarters(*[block(W1, 1)] * 4, owners={W1: "anna"}, flood=4400)
    silent = (1).to_bytes(16)
    with pytest.raises(WriterForgotten, match="none is known to be durable, those up to number 3 may be"):
        check_exact(silent, [merged])
    with pytest.raises(WriterForgotten):
        merged.last(silent, 0.1)
    later = inherit([(0.0, 1.0, unpacked(merged.pack(0, 0)))], low=0.5, high=1.0)
    with pytest.raises(WriterForgotten):
        later.last(silent, 0.6)
    merged.note(block(silent, 5, floor=5))
    check_exact(silent, [merged])
    assert merged.last(silent, 0.1) == 5


def test_a_forgotten_writer_is_forgotten_with_what_was_inherited() -> None:
    """Its id may be another user's now, whose events are not to be taken for those of the first."""
    table = inherit([(0.0, 1.0, table_of(block(W1, 10), block(W2, 3)))], low=0.0, high=1.0)
    table.forget(W1)
    assert (table.last(W1, 0.5), table.last(W2, 0.5)) == (0, 3)


# Which numbers are durable, over all segments


def test_a_flush_to_one_segment_is_durable_with_its_block() -> None:
    """There is nothing else to wait for."""
    assert durable_number(W1, [table_of(block(W1, 7, floor=7))]) == 7
    assert durable_number(W1, [table_of(block(W1, 7, floor=3, parts=1))]) == 7


def test_a_flush_to_several_segments_is_durable_when_all_have_their_part() -> None:
    """Until then only what came before the flush is; what is between must be sent again."""
    low = table_of(block(W1, 10, whole=10, floor=4, parts=2))
    high = table_of(block(W1, 4, whole=4, floor=4))
    assert durable_number(W1, [low, high]) == 4
    high.note(block(W1, 9, whole=10, floor=4, parts=2))
    assert durable_number(W1, [low, high]) == 10


def test_a_part_of_several_blocks_counts_with_its_last() -> None:
    """A large part is cut into blocks, and a crash may come between them."""
    table = table_of(block(W1, 6, whole=10, floor=4, parts=0))
    assert durable_number(W1, [table]) == 4
    table.note(block(W1, 10, whole=10, floor=4, parts=1))
    assert durable_number(W1, [table]) == 10


def test_an_unknown_writer_has_no_durable_number() -> None:
    """It begins from the beginning."""
    assert durable_number(W1, []) == durable_number(W1, [table_of(block(W2, 9))]) == 0


def test_parts_of_different_flushes_do_not_add_up_to_one() -> None:
    """A crash left one of three parts; the rest was sent again in two parts, of which one is there. One is missing."""
    first = table_of(block(W1, 8, whole=10, floor=4, parts=3))
    second = table_of(block(W1, 10, whole=10, floor=4, parts=2))
    third = table_of(block(W1, 4, floor=4))
    assert durable_number(W1, [first, second, third]) == 4


def test_the_highest_number_is_that_of_any_flush_even_if_it_did_not_get_through() -> None:
    """A writer that sends that flush again must know, or parts of two attempts add up to one that is not there."""
    table = table_of(block(W1, 8, whole=10, floor=4, parts=3))
    assert highest_number(W1, [table, table_of(block(W2, 99))]) == 10
    assert highest_number(W1, [inherit([(0.0, 1.0, table)], low=0.0, high=0.5)]) == 10
    table.note(block(W1, 12, whole=0, floor=4, parts=0))
    assert highest_number(W1, [table]) == 12
    assert highest_number(W1, []) == 0


@pytest.mark.parametrize("with_predecessors", [False, True])
def test_a_durable_number_does_not_go_back_when_the_stream_is_scaled(with_predecessors: bool) -> None:
    """All parts are there, only elsewhere: in a merged segment, in both halves of a split one, or in none but one."""
    low = table_of(block(W1, 10, whole=10, parts=2))
    high = table_of(block(W1, 9, whole=10, parts=2))
    old = [low, high] if with_predecessors else []
    merged = inherit([(0.0, 0.5, low), (0.5, 1.0, high)], low=0.0, high=1.0)
    assert durable_number(W1, [*old, merged]) == 10
    halves = [inherit([(0.0, 0.5, low)], low=a, high=b) for a, b in ((0.0, 0.25), (0.25, 0.5))]
    assert durable_number(W1, [*old[:1], *halves, high]) == 10
    again = [inherit([(0.0, 1.0, merged)], low=a, high=b) for a, b in ((0.0, 0.75), (0.75, 1.0))]
    assert durable_number(W1, again) == 10


def test_one_part_in_two_halves_is_still_one() -> None:
    """Both halves of a split segment inherit it; the other part is still missing."""
    low = table_of(block(W1, 10, whole=10, floor=4, parts=2))
    halves = [inherit([(0.0, 0.5, low)], low=a, high=b) for a, b in ((0.0, 0.25), (0.25, 0.5))]
    assert durable_number(W1, [low, *halves, table_of(block(W1, 4, floor=4))]) == 4


# A writer, a stream that is scaled, and crashes: whatever is sent again ends up just once.


@dataclass
class Model:
    """Segments as sets of event numbers of a writer, with their tables, over a key space of ten keys."""

    writer: bytes = W1
    owners: dict[bytes, str] = field(default_factory=dict)
    ranges: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.5), (0.5, 1.0)])
    tables: list[WriterTable] = field(default_factory=lambda: [WriterTable(), WriterTable()])
    there: list[int] = field(default_factory=list)

    def flush(self, numbers: list[int], keys: dict[int, float], *, floor: int, parts_kept: int) -> None:
        """Send events; only the first so many parts arrive."""
        parts: dict[int, list[int]] = {}
        for number in numbers:
            key = keys[number]
            index = next(index for index, (low, high) in enumerate(self.ranges) if low <= key < high)
            if number > self.tables[index].last(self.writer, key, durable=floor):
                parts.setdefault(index, []).append(number)
        whole = max((number for part in parts.values() for number in part), default=0)
        is_new = whole > highest_number(self.writer, self.tables)
        for index, part in list(parts.items())[:parts_kept]:
            self.there += part
            header = block(self.writer, part[-1], whole=whole * is_new, floor=floor, parts=len(parts) * is_new)
            self.tables[index].note(header, self._owners)
        if parts and not is_new and parts_kept >= len(parts):
            floor_block = StreamBlockHeader(
                count=0, writer=self.writer, last_number=whole, flush_last=whole, durable_floor=whole
            )
            self.tables[0].note(floor_block, self._owners)

    def scale(self, chance: random.Random) -> None:
        index = chance.randrange(len(self.ranges))
        low, high = self.ranges[index]
        if index + 1 < len(self.ranges) and chance.random() < 0.5:
            taken, new = 2, [(low, self.ranges[index + 1][1])]
        else:
            middle = (low + high) / 2
            taken, new = 1, [(low, middle), (middle, high)]
        old = [(*self.ranges[place], self.tables[place]) for place in range(index, index + taken)]
        self.tables[index : index + taken] = [inherit(old, low=a, high=b, owners=self._owners) for a, b in new]
        self.ranges[index : index + taken] = new

    def _owners(self) -> dict[bytes, str]:
        return self.owners


@given(st.integers(0, 2**32))
def test_events_sent_again_from_the_durable_number_on_are_there_just_once(seed: int) -> None:
    """That is the promise to a source that replays: whatever was lost or scaled in between."""
    chance, model = random.Random(seed), Model()
    keys = {number: chance.randrange(10) / 10 for number in range(1, 41)}
    sent = 0
    for _ in range(12):
        durable = durable_number(W1, model.tables)
        assert set(range(1, durable + 1)) <= set(model.there), "what is durable is there"
        sent = chance.randint(durable, min(durable + 8, 40))
        model.flush(list(range(durable + 1, sent + 1)), keys, floor=durable, parts_kept=chance.randint(0, 4))
        for _ in range(chance.randint(0, 2)):
            model.scale(chance)
    model.flush(list(range(durable_number(W1, model.tables) + 1, 41)), keys, floor=0, parts_kept=100)
    assert sorted(model.there) == list(range(1, 41))


@given(st.integers(0, 2**32))
def test_many_writers_that_send_again_find_everything_just_once_or_are_refused(seed: int) -> None:
    """Neither other ids nor merges of full tables may double or lose an event without an error."""
    chance = random.Random(seed)
    first = Model(writer_hash("0"))
    crowd = [first, *(replace(first, writer=writer_hash(str(number)), there=[]) for number in range(1, 6))]
    first.owners |= {model.writer: chance.choice(["anna", "berta"]) for model in crowd}
    keys = {number: chance.randrange(10) / 10 for number in range(1, 41)}
    durable = dict.fromkeys(first.owners, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.stream.segment._writer_table.ENTRIES_MAX", 8)
        for _ in range(40):
            model = chance.choice(crowd)
            found = durable_number(model.writer, first.tables)
            with suppress(WriterForgotten):
                check_exact(model.writer, first.tables)
                assert found >= durable[model.writer], "what was durable is remembered"
                durable[model.writer] = found
                last = chance.randint(found, min(found + 8, 40))
                model.flush(list(range(found + 1, last + 1)), keys, floor=found, parts_kept=chance.randint(0, 4))
            chance.choice(first.tables).note(block(chance.randbytes(16), 1), lambda: first.owners)
            if chance.random() < 0.5:
                first.scale(chance)
            assert all(len(one) <= 8 for table in first.tables for one in (table.own, table.inherited))
        for model in crowd:
            found, expected = durable_number(model.writer, first.tables), set(range(1, 41))
            try:
                check_exact(model.writer, first.tables)
                model.flush(list(range(found + 1, 41)), keys, floor=found, parts_kept=100)
            except WriterForgotten as error:
                expected = set(range(1, error.highest + 2)) & set(model.there)  # where it says to look
            assert sorted(model.there) == sorted(expected)
            assert set(range(1, found + 1)) <= expected
