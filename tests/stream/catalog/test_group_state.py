"""A group's state: whatever happens, every segment is at one place, and all places together are a cut."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations, product
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model import StreamConfig, StreamCut
from penstock.stream.catalog._group_state import CHECKPOINTS_MAX, GroupState, lost_segments, nested
from penstock.stream.catalog._stream_state import StreamState
from penstock.stream.format import (
    CheckpointBegun,
    CheckpointDropped,
    CheckpointReached,
    GroupCreated,
    GroupFull,
    GroupReset,
    ReaderGone,
    ReaderJoined,
    ReaderMoved,
    SegmentDone,
    SegmentsReleased,
    SegmentsTaken,
    StreamCreated,
    StreamScaled,
    StreamStopped,
    StreamTruncated,
    decode_records,
    encode_records,
)
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.stream.catalog._group_state import Key
    from penstock.stream.format import GroupRecord

GROUP: Final = "g"
A: Final = "plant/a"
B: Final = "plant/b"
READERS: Final = ["r1", "r2", "r3"]
SEGMENTS_MAX: Final = 40

dice_strategy = st.builds(Random, st.integers(0, 1 << 32))  # even; hypothesis itself is fond of zeros


def new_stream(name: str = A, segments: int = 2) -> StreamState:
    return StreamState(StreamCreated(name, 0, segments, StreamConfig()))


def scale(stream: StreamState, ends: dict[int, int], ranges: list[tuple[float, float]]) -> None:
    stream.apply(StreamScaled(stream.name, ends, ranges, 0))


def new_group(stream: StreamState, *, ends: dict[int, int] | None = None, reader: str | None = "r1") -> GroupState:
    """A group at the head of a stream, of which a reader, if there is one, has all segments."""
    state = GroupState(GroupCreated(GROUP, {stream.name: dict(stream.head)}, {stream.name: ends} if ends else {}))
    if reader is not None:
        state.apply(ReaderJoined(GROUP, reader))
        state.apply(SegmentsTaken(GROUP, reader, {stream.name: list(stream.head)}))
    return state


def done(stream: StreamState, segment: int, end: int, reader: str = "r1") -> SegmentDone:
    return SegmentDone(GROUP, reader, stream.name, segment, end, *map(sorted, stream.succession(segment)))


def check_is_cut(stream: StreamState, places: Mapping[int, int]) -> None:
    """Fail unless the places cover the key space once, none of them behind another."""
    stream.check_cut(StreamCut.of(stream.name, places))
    assert not stream.after(places) & places.keys()


def later_cut(
    dice: Random, stream: StreamState, tails: Mapping[Key, int], cut: Mapping[int, int], limit: Mapping[int, int]
) -> dict[int, int]:
    """Return some cut between two others; without a limit the tail is the second."""
    found = dict(cut)
    for _ in range(dice.randrange(4)):
        for segment, place in found.items():
            found[segment] = dice.randint(place, max(place, limit.get(segment, tails[stream.name, segment])))
        segment = dice.choice(sorted(found))
        old, new = stream.succession(segment)
        if new and set(old) <= found.keys() - limit.keys():
            found = {one: place for one, place in found.items() if one not in old} | dict.fromkeys(new, 0)
    return found


class GroupMachine(RuleBasedStateMachine):
    """Readers, scaling, truncation and checkpoints in any order, in a group with one or two streams."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = {name: new_stream(name) for name in (A, B)}
        self.tails: dict[Key, int] = {(name, one): 0 for name in self.streams for one in (0, 1)}
        self.records: list[GroupRecord] = []
        self.passed: set[Key] = set()  # read to the end, or before the group's start
        self.before: dict[Key, int] = {}  # how far work went that belongs before the checkpoint
        self.is_under_way = self.truncated_meanwhile = False  # the checkpoint; the stream since it began
        self.count = 0

    @initialize(dice=dice_strategy, several=st.booleans())
    def begin(self, dice: Random, *, several: bool) -> None:
        for _ in range(dice.randrange(4)):
            self.append_and_scale(dice)
        names = [A, B] if several else [A]
        starts = {name: self.some_cut(dice, name, self.streams[name].head) for name in names}
        bounded = names if dice.randrange(4) == 0 else []
        ends = {name: self.some_cut(dice, name, starts[name]) for name in bounded}
        self.created = GroupCreated(GROUP, starts, ends)
        self.state = GroupState(self.created)
        self.start_at(starts)
        self.join()
        self.join()
        self.all_settle(dice)

    def some_cut(
        self, dice: Random, name: str, low: Mapping[int, int], limit: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        return later_cut(dice, self.streams[name], self.tails, low, limit or {})

    def start_at(self, starts: Mapping[str, Mapping[int, int]]) -> None:
        self.passed = {(name, one) for name, cut in starts.items() for one in self.streams[name].before(cut)}
        self.before = {(name, one): place for name, cut in starts.items() for one, place in cut.items()}

    def apply(self, *records: GroupRecord) -> None:
        for record in records:
            self.state.apply(record)
            self.records.append(record)

    def end_of(self, key: Key) -> int | None:
        """Where reading the segment ends, if that is known."""
        bound = self.state.end_of(key)
        name, segment = key
        return bound if bound is not None else self.streams[name].segments[segment].end

    # The streams

    @rule(dice=dice_strategy)
    def append_and_scale(self, dice: Random) -> None:
        self.append(dice)
        self.scale(dice)

    def append(self, dice: Random) -> None:
        for name, stream in self.streams.items():
            for one in [] if stream.sealed else stream.current:
                self.tails[name, one.segment_id] += dice.randrange(5)

    def scale(self, dice: Random) -> None:
        stream = self.streams[dice.choice([A, B])]
        current = stream.current
        if stream.sealed or len(stream.segments) > SEGMENTS_MAX:
            return
        first = dice.randrange(len(current))
        old = current[first : first + dice.randint(1, 3)]
        low, high = old[0].low, old[-1].high
        inner = {low + (high - low) * dice.randint(1, 7) / 8 for _ in range(dice.randrange(3))}
        marks = [low, *sorted(inner), high]
        ends = {one.segment_id: self.tails[stream.name, one.segment_id] for one in old}
        scale(stream, ends, list(pairwise(marks)))
        self.tails |= {(stream.name, one): self.tails.get((stream.name, one), 0) for one in stream.segments}

    @rule(name=st.sampled_from([A, B]), dice=dice_strategy)
    def seal(self, name: str, dice: Random) -> None:
        stream = self.streams[name]
        if not stream.sealed and not dice.randrange(8):  # little happens afterwards
            stream.apply(
                StreamStopped(name, {one.segment_id: self.tails[name, one.segment_id] for one in stream.current})
            )

    @rule(dice=dice_strategy)
    def truncate(self, dice: Random) -> None:
        for name, stream in self.streams.items():
            stream.apply(StreamTruncated(name, self.some_cut(dice, name, stream.head)))
        streams = [self.streams[name] for name in self.state.streams]
        self.truncated_meanwhile = True
        lost = lost_segments(self.state, streams)
        self.apply(*lost)
        assert not lost_segments(self.state, streams)

    # The readers

    @precondition(lambda self: len(self.state.readers) < len(READERS))
    @rule()
    def join(self) -> None:
        name = next(one for one in READERS if one not in self.state.readers)
        self.apply(ReaderJoined(GROUP, name, is_remote=len(self.state.readers) % 2 == 1))

    @precondition(lambda self: self.state.readers)
    @rule(dice=dice_strategy, is_known=st.booleans())
    def leave(self, dice: Random, *, is_known: bool) -> None:
        reader = dice.choice(sorted(self.state.readers))
        places = self.moved(reader, dice) if is_known else {}
        self.note(reader, places)
        self.apply(ReaderGone(GROUP, reader, nested(places)))
        self.check_checkpoint()

    @precondition(lambda self: self.state.readers)
    @rule(dice=dice_strategy)
    def some_work(self, dice: Random) -> None:
        for reader in sorted(self.state.readers):
            if dice.randrange(2):
                self.settle(reader)
            places = self.moved(reader, dice)
            self.note(reader, places)
            self.apply(ReaderMoved(GROUP, reader, nested(places)))
            self.finish_segments(reader)

    def moved(self, reader: str, dice: Random) -> dict[Key, int]:
        held = self.state.readers[reader]
        ends = {key: self.end_of(key) for key in held}
        tails = {key: self.tails[key] if end is None else end for key, end in ends.items()}
        return {key: dice.choice([place, max(place, tails[key])]) for key, place in held.items()}

    def note(self, reader: str, places: Mapping[Key, int]) -> None:
        if self.state.checkpoint is None or reader in self.state.missing:
            self.before.update(places)

    def finish_segments(self, reader: str) -> None:
        for key, place in list(self.state.readers[reader].items()):
            end = self.end_of(key)
            if end is not None and place >= end:
                self.note(reader, {key: end})
                name, segment = key
                self.passed.add(key)
                self.apply(
                    SegmentDone(GROUP, reader, name, segment, end, *map(sorted, self.streams[name].succession(segment)))
                )

    def settle(self, reader: str) -> None:
        share = self.state.share(reader)
        assert not (share.take and share.give)
        if share.give:
            held = self.state.readers[reader]
            self.apply(SegmentsReleased(GROUP, reader, nested({key: held[key] for key in share.give})))
        if share.take:
            taken = {name: [one for where, one in share.take if where == name] for name, _ in share.take}
            self.apply(SegmentsTaken(GROUP, reader, taken))

    @precondition(lambda self: self.state.readers and self.state.checkpoint is None)
    @rule(dice=dice_strategy)
    def all_settle(self, dice: Random) -> None:
        """Fair when each has looked before and after the others gave, and stable once it is."""
        for _ in range(2):
            for reader in dice.sample(sorted(self.state.readers), len(self.state.readers)):
                self.settle(reader)
        counts = [len(held) for held in self.state.readers.values()]
        assert not self.state.free
        assert max(counts) - min(counts) <= 1
        assert all(self.state.share(reader) == ([], []) for reader in self.state.readers)

    # Checkpoints and resets

    @precondition(lambda self: self.state.readers and self.state.checkpoint is None)
    @rule()
    def begin_checkpoint(self) -> None:
        self.count += 1
        places = self.state.places()
        self.before = {(name, one): place for name, cut in places.items() for one, place in cut.items()}
        self.truncated_meanwhile, self.is_under_way = False, True
        self.apply(CheckpointBegun(GROUP, f"c{self.count}"))
        self.check_checkpoint()

    @precondition(lambda self: self.state.missing)
    @rule(dice=dice_strategy)
    def reach_checkpoint(self, dice: Random) -> None:
        reader = dice.choice(sorted(self.state.missing))
        places = self.moved(reader, dice)
        self.note(reader, places)
        self.apply(CheckpointReached(GROUP, reader, nested(places)))
        self.check_checkpoint()

    def check_checkpoint(self) -> None:
        """Once it is done, it is where all work that came before it had got to."""
        found = self.state.checkpoints.get(f"c{self.count}")
        is_news, self.is_under_way = self.is_under_way and found is not None, self.state.checkpoint is not None
        if found is None or not is_news or self.truncated_meanwhile:
            return
        for name, places in found.items():
            check_is_cut(self.streams[name], places)
            assert places == {one: self.before[name, one] for one in places}

    @precondition(lambda self: self.state.checkpoint is not None)
    @rule()
    def drop_checkpoint(self) -> None:
        self.is_under_way = False
        self.apply(CheckpointDropped(GROUP, f"c{self.count}"))

    @rule(dice=dice_strategy)
    def reset(self, dice: Random) -> None:
        if dice.randrange(4):  # it ends all that was going on
            return
        starts = {}
        for name in self.state.streams:
            stream, end = self.streams[name], self.state.ends[name]
            if end and any(one not in end and one not in stream.before(end) for one in stream.head):
                return  # the group's end is truncated away
            if any(place > end.get(one, place) for one, place in stream.head.items()):
                return
            starts[name] = self.some_cut(dice, name, stream.head, end)
        self.is_under_way = False
        self.apply(GroupReset(GROUP, starts, self.state.epoch + 1))
        self.start_at(starts)

    # What always holds

    @invariant()
    def every_segment_is_at_one_place(self) -> None:
        state = self.state
        found = Counter([*state.free, *state.done, *state.waiting])
        for held in state.readers.values():
            found.update(held.keys())
        assert all(count == 1 for count in found.values()), found

    @invariant()
    def all_places_are_a_cut(self) -> None:
        for name, places in self.state.places().items():
            check_is_cut(self.streams[name], places)

    @invariant()
    def nothing_is_read_before_its_predecessors(self) -> None:
        state = self.state
        for name, segment in [*state.free, *(key for held in state.readers.values() for key in held)]:
            stream = self.streams[name]
            for before in stream.segments[segment].predecessors:
                assert (name, before) in self.passed or before not in stream.segments

    @invariant()
    def nothing_beyond_the_end_is_read(self) -> None:
        state = self.state
        for name, segment in [*state.free, *state.waiting, *(key for held in state.readers.values() for key in held)]:
            assert segment not in self.streams[name].after(state.ends[name])
        for name, places in state.places().items():
            assert all(place <= state.ends[name].get(one, place) for one, place in places.items())

    @invariant()
    def a_snapshot_holds_all_of_it(self) -> None:
        full = self.state.full()
        (decoded,) = decode_records(encode_records([full]))
        assert isinstance(decoded, GroupFull)
        assert vars(GroupState.restore(decoded)) == vars(self.state)

    def teardown(self) -> None:
        """What was written says the same when it is read again."""
        if hasattr(self, "state"):
            again = GroupState(self.created)
            for record in decode_records(encode_records(self.records)):
                again.apply(record)  # type: ignore[arg-type]
            assert vars(again) == vars(self.state)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=examples(400), stateful_step_count=40)


@pytest.mark.parametrize("counts", list(product(range(5), repeat=3)))
def test_when_all_have_given_each_looks_once_and_nothing_is_left_over(counts: tuple[int, ...]) -> None:
    """A reader is told to look when another gives, not when one takes: no reader would take what is left over then."""
    for first, second in product(permutations(READERS), repeat=2):
        state = GroupState(GroupCreated(GROUP, {A: dict.fromkeys(range(sum(counts) + 2), 0)}, {}))
        for reader, count in zip(READERS, counts, strict=True):
            state.apply(ReaderJoined(GROUP, reader))
            state.apply(SegmentsTaken(GROUP, reader, {A: [one for _, one in sorted(state.free)[:count]]}))
        for reader in first + second:
            share = state.share(reader)
            state.apply(SegmentsReleased(GROUP, reader, nested(dict.fromkeys(share.give, 0))))
            state.apply(SegmentsTaken(GROUP, reader, {A: [one for _, one in share.take]}))
        held = sorted(len(segments) for segments in state.readers.values())
        assert not state.free
        assert held[-1] - held[0] <= 1


def test_a_split_segment_is_followed_when_it_is_read() -> None:
    """The order of a key holds across scaling: what was written later is read later."""
    stream = new_stream(segments=1)
    state = new_group(stream)
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    state.apply(done(stream, 0, 10))
    assert state.free == {(A, 1): 0, (A, 2): 0}
    assert state.places() == {A: {1: 0, 2: 0}}


def test_a_merged_segment_waits_for_all_that_were_merged_and_the_cut_is_whole_meanwhile() -> None:
    """A checkpoint or retention at that moment must neither lose the part that is done nor read it again."""
    stream = new_stream(segments=2)
    state = new_group(stream)
    scale(stream, {0: 10, 1: 20}, [(0.0, 1.0)])
    state.apply(done(stream, 0, 10))
    assert not state.free
    assert state.waiting == {(A, 2)}
    assert state.places() == {A: {0: 10, 1: 0}}
    state.apply(done(stream, 1, 20))
    assert state.places() == {A: {2: 0}}
    assert not state.waiting


def test_when_the_border_between_two_segments_moves_both_are_read_before_what_follows() -> None:
    """The new first segment comes after the old first one only; but there is no cut that has just one of the new."""
    stream = new_stream(segments=2)
    state = new_group(stream)
    scale(stream, {0: 10, 1: 20}, [(0.0, 0.25), (0.25, 1.0)])
    assert stream.segments[2].predecessors == (0,)
    state.apply(done(stream, 0, 10))
    assert not state.free
    assert state.places() == {A: {0: 10, 1: 0}}
    state.apply(done(stream, 1, 20))
    assert state.free == {(A, 2): 0, (A, 3): 0}


def test_segments_that_are_replaced_one_for_one_do_not_wait_for_each_other() -> None:
    """They have nothing to do with each other, so waiting would only cost time."""
    stream = new_stream(segments=2)
    state = new_group(stream)
    scale(stream, {0: 10, 1: 20}, [(0.0, 0.5), (0.5, 1.0)])
    state.apply(done(stream, 0, 10))
    assert state.free == {(A, 2): 0}


def test_a_group_with_an_end_does_not_go_on_behind_it_and_is_finished() -> None:
    """A bounded read ends by itself, however the stream went on."""
    stream = new_stream(segments=1)
    state = new_group(stream, ends={0: 7})
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    state.apply(done(stream, 0, 7))
    assert state.finished
    assert state.places() == {A: {0: 7}}


def test_a_group_is_finished_when_a_sealed_stream_is_read() -> None:
    """Then a reader can stop waiting; and the position at the end is kept for callers that ask for it."""
    stream = new_stream(segments=1)
    state = new_group(stream)
    stream.apply(StreamStopped(A, {0: 10}))
    state.apply(done(stream, 0, 10))
    assert state.finished
    assert state.places() == {A: {0: 10}}


def test_a_checkpoint_without_readers_is_done_at_once() -> None:
    """No reader would ever come to it."""
    state = new_group(new_stream(), reader=None)
    state.apply(CheckpointBegun(GROUP, "c"))
    assert state.checkpoints == {"c": {A: {0: 0, 1: 0}}}
    assert state.checkpoint is None


def test_what_a_reader_reads_behind_a_checkpoint_is_not_part_of_it() -> None:
    """A group that starts again from it must see those events."""
    state = new_group(new_stream())
    state.apply(ReaderJoined(GROUP, "r2"))
    state.apply(CheckpointBegun(GROUP, "c"))
    state.apply(CheckpointReached(GROUP, "r1", {A: {0: 5, 1: 6}}))
    state.apply(ReaderMoved(GROUP, "r1", {A: {0: 50, 1: 60}}))
    state.apply(CheckpointReached(GROUP, "r2", {}))
    assert state.checkpoints["c"] == {A: {0: 5, 1: 6}}
    assert state.places() == {A: {0: 50, 1: 60}}


def test_a_segment_that_ends_behind_a_checkpoint_is_in_it_with_its_place() -> None:
    """Its successors are free by then, but a cut with them would lose what lies between."""
    stream = new_stream(segments=1)
    state = new_group(stream)
    state.apply(ReaderJoined(GROUP, "r2"))
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    state.apply(CheckpointBegun(GROUP, "c"))
    state.apply(CheckpointReached(GROUP, "r1", {A: {0: 5}}))
    state.apply(done(stream, 0, 10))
    state.apply(CheckpointReached(GROUP, "r2", {}))
    assert state.checkpoints["c"] == {A: {0: 5}}


def test_a_segment_that_ends_before_a_checkpoint_is_in_it_with_its_end() -> None:
    """The end of a segment is as good a place as the beginning of those that follow."""
    stream = new_stream(segments=1)
    state = new_group(stream)
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    state.apply(CheckpointBegun(GROUP, "c"))
    state.apply(done(stream, 0, 10))
    state.apply(CheckpointReached(GROUP, "r1", {}))
    assert state.checkpoints["c"] == {A: {0: 10}}


def test_no_segment_changes_hands_while_a_checkpoint_is_under_way() -> None:
    """Otherwise one reader's work behind the checkpoint would be another's before it."""
    state = new_group(new_stream())
    state.apply(ReaderJoined(GROUP, "r2"))
    assert state.share("r1").give
    state.apply(CheckpointBegun(GROUP, "c"))
    assert state.share("r1") == state.share("r2") == ([], [])
    state.apply(ReaderGone(GROUP, "r1", {}))
    for record in (
        SegmentsReleased(GROUP, "r2", {}),
        SegmentsTaken(GROUP, "r2", {A: [0]}),
        CheckpointBegun(GROUP, "d"),
    ):
        with pytest.raises(ValueError, match="checkpoint"):
            state.apply(record)


def test_a_reader_that_is_gone_has_come_to_the_checkpoint() -> None:
    """A checkpoint does not fail because a reader does."""
    state = new_group(new_stream())
    state.apply(ReaderMoved(GROUP, "r1", {A: {0: 5}}))
    state.apply(CheckpointBegun(GROUP, "c"))
    state.apply(ReaderGone(GROUP, "r1", {A: {1: 3}}))
    assert state.checkpoints["c"] == {A: {0: 5, 1: 3}}


def test_the_oldest_checkpoints_are_forgotten() -> None:
    """A group that makes one every minute for years stays small."""
    state = new_group(new_stream(), reader=None)
    for number in range(CHECKPOINTS_MAX + 3):
        state.apply(CheckpointBegun(GROUP, f"c{number}"))
    assert list(state.checkpoints) == [f"c{number}" for number in range(3, CHECKPOINTS_MAX + 3)]


def test_checkpoints_of_very_many_segments_are_forgotten_sooner() -> None:
    """All that there is to know of a group must fit into one append."""
    state = new_group(new_stream(segments=10_000), reader=None)
    for number in range(9):
        state.apply(CheckpointBegun(GROUP, f"c{number}"))
    assert list(state.checkpoints) == [f"c{number}" for number in range(4, 9)]
    assert len(encode_records([state.full()])) < 1 << 20


def test_the_last_checkpoint_is_kept_however_large() -> None:
    """The reader that waited for it gets it."""
    starts = {f"plant/{number}": dict.fromkeys(range(10_000), 0) for number in range(6)}
    state = GroupState(GroupCreated(GROUP, starts, {}))
    state.apply(CheckpointBegun(GROUP, "c"))
    assert state.checkpoints == {"c": starts}


@pytest.mark.parametrize("came_to_it", [True, False])
def test_segments_that_are_truncated_away_are_in_a_checkpoint_where_their_reader_was(*, came_to_it: bool) -> None:
    """It is a cut all the same; going back to it tells that it is truncated away."""
    stream = new_stream(segments=1)
    state = new_group(stream)
    state.apply(ReaderJoined(GROUP, "r2"))
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    state.apply(ReaderMoved(GROUP, "r1", {A: {0: 3}}))
    state.apply(CheckpointBegun(GROUP, "c"))
    if came_to_it:
        state.apply(CheckpointReached(GROUP, "r1", {}))
        state.apply(ReaderMoved(GROUP, "r1", {A: {0: 7}}))
    stream.apply(StreamTruncated(A, {1: 4, 2: 0}))
    (lost,) = lost_segments(state, [stream])
    state.apply(lost)
    for reader in sorted(state.missing):
        state.apply(CheckpointReached(GROUP, reader, {}))
    assert state.checkpoints["c"] == {A: {0: 3}}


def test_when_segments_are_truncated_away_the_group_goes_on_at_the_head() -> None:
    """It cannot read what is not there, and must not wait for it either."""
    stream = new_stream(segments=1)
    state = new_group(stream)
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    stream.apply(StreamTruncated(A, {1: 4, 2: 0}))
    (lost,) = lost_segments(state, [stream])
    state.apply(lost)
    assert state.readers == {"r1": {}}
    assert state.free == {(A, 1): 4, (A, 2): 0}


def test_what_waited_for_segments_that_are_truncated_away_waits_no_more() -> None:
    """Neither if it is where the stream begins now, nor if it is gone itself."""
    stream = new_stream(segments=2)
    state = new_group(stream)
    scale(stream, {0: 10, 1: 20}, [(0.0, 1.0)])
    state.apply(done(stream, 0, 10))
    again = GroupState.restore(state.full())
    stream.apply(StreamTruncated(A, {2: 5}))
    (lost,) = lost_segments(state, [stream])
    state.apply(lost)
    assert (state.free, state.waiting, state.done) == ({(A, 2): 5}, set(), {})
    scale(stream, {2: 30}, [(0.0, 0.5), (0.5, 1.0)])
    stream.apply(StreamTruncated(A, {3: 0, 4: 0}))
    (lost,) = lost_segments(again, [stream])
    again.apply(lost)
    assert (again.free, again.waiting, again.done) == ({(A, 3): 0, (A, 4): 0}, set(), {})


def test_a_group_whose_end_is_truncated_away_is_finished() -> None:
    """Nothing that it was to read is left."""
    stream = new_stream(segments=1)
    state = new_group(stream, ends={0: 7})
    scale(stream, {0: 10}, [(0.0, 0.5), (0.5, 1.0)])
    stream.apply(StreamTruncated(A, {1: 4, 2: 0}))
    (lost,) = lost_segments(state, [stream])
    state.apply(lost)
    assert state.finished
    assert state.places() == {A: {1: 4, 2: 0}}


@pytest.mark.parametrize(
    "record",
    [
        ReaderJoined(GROUP, "r1"),
        ReaderGone(GROUP, "r9", {}),
        ReaderGone(GROUP, "r1", {A: {9: 0}}),
        ReaderMoved(GROUP, "r9", {}),
        ReaderMoved(GROUP, "r1", {A: {9: 0}}),
        SegmentsTaken(GROUP, "r1", {A: [0]}),
        SegmentsReleased(GROUP, "r1", {A: {9: 0}}),
        SegmentDone(GROUP, "r1", A, 9, 0, [], []),
        CheckpointReached(GROUP, "r1", {}),
        CheckpointDropped(GROUP, "c"),
        GroupReset(GROUP, {B: {0: 0}}),
    ],
    ids=lambda record: f"{type(record).__name__}-{record.group}",
)
def test_a_record_that_does_not_follow_is_refused(record: GroupRecord) -> None:
    """A catalog that no Penstock wrote is damaged, and must not be taken for a group."""
    state = new_group(new_stream())
    with pytest.raises((KeyError, ValueError)):
        state.apply(record)
