"""The chain against a plain list: which byte of a log lies where."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log._chain import LogChain, PlogRange
from penstock.model import PlogId


def plog(number: int) -> PlogId:
    return PlogId("local", "main", f"{number:032x}")


@dataclass
class Model:
    """A log as a list: (plog, its length) in order, the active one last and of unknown length."""

    sealed: list[tuple[PlogId, int]] = field(default_factory=list)
    start: int = 0

    def start_of(self, place: int) -> int:
        return self.start + sum(length for _, length in self.sealed[:place])


@dataclass
class Pair:
    """A chain and its model, changed together."""

    chain: LogChain
    model: Model
    count: int = 2

    @classmethod
    def new(cls) -> Pair:
        return cls(LogChain(active=plog(0), next_id=plog(1)), Model())

    def switch(self, length: int) -> None:
        self.model.sealed.append((self.chain.active, length))
        self.chain.switch(length, active=self.chain.next, next_id=plog(self.count))
        self.count += 1

    def truncate(self, place: int) -> None:
        place %= len(self.model.sealed) + 1
        first = [*(plog_id for plog_id, _ in self.model.sealed), self.chain.active][place]
        removed = [plog_id for plog_id, _ in self.model.sealed[:place]]
        assert self.chain.truncate(first) == removed
        self.model.start = self.model.start_of(place)
        del self.model.sealed[:place]
        for plog_id in removed:
            with pytest.raises(KeyError):
                self.chain.start_of(plog_id)

    def take_over(self, lengths: list[int]) -> None:
        for length in lengths:
            self.chain.add_sealed(plog(self.count), length)
            self.model.sealed.insert(len(self.model.sealed), (plog(self.count), length))
            self.count += 1

    def replace(self, count: int) -> None:
        some = self.model.sealed[1 : count + 1]
        if some:
            length = sum(length for _, length in some)
            with pytest.raises(KeyError):
                self.chain.replace(some[0][0], len(some), plog(self.count), length + 1)
            removed = self.chain.replace(some[0][0], len(some), plog(self.count), length)
            assert removed == [plog_id for plog_id, _ in some]
            self.model.sealed[1 : count + 1] = [(plog(self.count), length)]
            self.count += 1

    def check(self) -> None:
        chain, model = self.chain, self.model
        assert chain.sealed == model.sealed
        assert chain.start == model.start
        assert chain.active_start == model.start_of(len(model.sealed))
        assert chain.last_sealed == (model.sealed[-1] if model.sealed else None)
        for place, (plog_id, length) in enumerate(model.sealed):
            assert chain.start_of(plog_id) == model.start_of(place)
            assert chain.end_of(plog_id) == model.start_of(place) + length
        assert chain.start_of(chain.active) == chain.active_start
        starts = [model.start_of(place) for place in range(len(model.sealed) + 1)]
        assert [chain.start_of_number(number) for number in chain.numbers] == starts

    def bytes_of(self, active_length: int) -> list[tuple[PlogId, int]]:
        """Return where every byte of the log lies, one by one."""
        plogs = [*self.model.sealed, (self.chain.active, active_length)]
        return [(plog_id, offset) for plog_id, length in plogs for offset in range(length)]


changes = st.lists(
    st.one_of(
        st.tuples(st.just("switch"), st.integers(0, 9)),
        st.tuples(st.just("truncate"), st.integers(0, 20)),
        st.tuples(st.just("replace"), st.integers(1, 4)),
        st.tuples(st.just("take_over"), st.lists(st.integers(0, 9), max_size=3)),
    ),
    max_size=15,
)


def lived(history: list[tuple[str, object]]) -> Pair:
    pair = Pair.new()
    for name, argument in history:
        getattr(pair, name)(argument)
    return pair


@given(changes)
def test_a_chain_is_a_list_of_plogs(history: list[tuple[str, object]]) -> None:
    """Its index and running sums are there for speed; they must never say anything else than the list."""
    pair = Pair.new()
    for name, argument in history:
        getattr(pair, name)(argument)
        pair.check()


@given(changes, st.integers(0, 9), st.data())
def test_ranges_are_exactly_the_bytes_asked_for(
    history: list[tuple[str, object]], active_length: int, data: st.DataObject
) -> None:
    """Every byte once, in order, and none of the empty plogs that a failure may leave in a chain."""
    pair = lived(history)
    every = pair.bytes_of(active_length)
    first = data.draw(st.integers(0, len(every)))
    last = data.draw(st.integers(first, len(every)))
    start = pair.chain.start
    ranges = pair.chain.ranges(start + first, start + last)
    assert [(part.plog_id, part.offset + place) for part in ranges for place in range(part.size)] == every[first:last]
    assert all(part.size for part in ranges)


def test_a_range_in_the_active_plog_alone() -> None:
    """The active plog's length is not the chain's to know."""
    pair = lived([("switch", 5)])
    assert pair.chain.ranges(7, 1 << 40) == [PlogRange(plog(1), 2, (1 << 40) - 7)]
    assert pair.chain.ranges(5, 5) == []


def test_what_is_not_in_the_chain_is_not_found() -> None:
    """The next plog is announced, not part of the log."""
    chain = lived([("switch", 5)]).chain
    for unknown in (chain.next, plog(99)):
        with pytest.raises(KeyError):
            chain.start_of(unknown)
        with pytest.raises(KeyError):
            chain.truncate(unknown)
    assert len(chain.sealed) == 1


def test_a_plog_keeps_its_number_when_those_before_it_are_truncated_away() -> None:
    """A walk through a chain that is cut meanwhile must not slip: plogs that are gone begin at the start of the log."""
    pair = lived([("switch", 5), ("switch", 7), ("switch", 9)])
    numbers = pair.chain.numbers
    assert [pair.chain.start_of_number(number) for number in numbers] == [0, 5, 12, 21]
    pair.truncate(2)
    assert [pair.chain.start_of_number(number) for number in numbers] == [12, 12, 12, 21]
    assert pair.chain.numbers == numbers[2:]
