"""The newest blocks of a segment, which are fetched once for all who follow it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client._connection import ConnectionLost
from penstock.wire import Newest
from penstock.wire import _newest as newest
from tests.log.harness import SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator


class Source:
    """Blocks that begin where ``marks`` are, and how often each was fetched."""

    def __init__(self, *marks: int) -> None:
        self.blocks = list(pairwise(marks))
        self.fetched: list[int] = []

    def fetch(self, offset: int, stop: int) -> Iterator[tuple[int, int, int]]:
        for start, end in self.blocks:
            if start < stop and offset < end:
                self.fetched.append(start)
                yield start, end, start


@pytest.fixture
def source() -> Source:
    return Source(0, 10, 20, 30, 40)


def test_who_asks_for_the_same_gets_it_without_another_fetch(source: Source) -> None:
    """Two hundred readers of a stream cost as much as one."""
    followed = Newest[int]()
    for stop in (10, 20, 30, 40):
        for _ in range(200):
            assert followed.between(stop - 10, stop, source.fetch) == [stop - 10]
    assert source.fetched == [0, 10, 20, 30]


def test_who_asks_for_more_has_only_the_rest_fetched(source: Source) -> None:
    """Some are told sooner than others how far there is something to read."""
    followed = Newest[int]()
    assert followed.between(5, 10, source.fetch) == [0]
    assert followed.between(0, 30, source.fetch) == [0, 10, 20]
    assert followed.between(10, 20, source.fetch) == [10]
    assert source.fetched == [0, 10, 20]


def test_who_comes_late_does_not_take_away_what_others_follow(source: Source) -> None:
    """A reader that starts at the head reads through blocks that no other reader wants."""
    followed = Newest[int]()
    followed.between(20, 30, source.fetch)
    assert followed.between(0, 20, source.fetch) == [0, 10]
    assert followed.between(20, 30, source.fetch) == [20]
    assert source.fetched == [20, 0, 10]


def test_what_is_kept_is_bounded(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long somebody follows; the last block stays, however large."""
    monkeypatch.setattr(newest, "NEWEST_SIZE", 5)
    followed = Newest[int]()
    assert followed.between(0, 40, source.fetch) == [0, 10, 20, 30]
    assert [start for start, _, _ in followed._blocks] == [30]
    followed.between(30, 40, source.fetch)
    followed.between(20, 40, source.fetch)
    assert source.fetched == [0, 10, 20, 30, 20, 30]


def test_a_block_that_is_sent_is_not_fetched(source: Source) -> None:
    """Those that follow at the tail are sent what is new; one that was behind fetches only what lies between."""
    followed = Newest[int]()
    followed.add(10, 20, 10)
    followed.add(20, 30, 20)
    followed.add(20, 30, 99)
    assert [followed.holds(offset) for offset in (9, 10, 29, 30)] == [False, True, True, False]
    assert followed.between(10, 40, source.fetch) == [10, 20, 30]
    assert source.fetched == [30]
    followed.add(70, 80, 70)
    assert not followed.holds(30)
    assert followed.between(70, 80, source.fetch) == [70]


def test_blocks_that_are_sent_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not read does not fill the memory of its process."""
    monkeypatch.setattr(newest, "NEWEST_SIZE", 25)
    followed = Newest[int]()
    for start in range(0, 1000, 10):
        followed.add(start, start + 10, start)
    assert [start for start, _, _ in followed._blocks] == [980, 990]


def test_who_asks_while_it_is_fetched_waits_for_it(source: Source) -> None:
    """All of them are told at the same moment."""
    followed, may_come, is_asked = Newest[int](), threading.Event(), threading.Event()

    def slow(offset: int, stop: int) -> Iterator[tuple[int, int, int]]:
        is_asked.set()
        assert may_come.wait(SECONDS_MAX)
        yield from source.fetch(offset, stop)

    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(followed.between, 0, 10, slow) for _ in range(4)]
        assert is_asked.wait(SECONDS_MAX)
        may_come.set()
        assert [one.result(SECONDS_MAX) for one in asked] == [[0]] * 4
    assert source.fetched == [0]


def test_blocks_are_added_while_a_thread_fetches(source: Source) -> None:
    """A fetch may wait for an answer that comes behind a notification with new blocks: the client hung for ever."""
    followed, added = Newest[int](), threading.Event()

    def answered_after_the_notification(offset: int, stop: int) -> Iterator[tuple[int, int, int]]:
        assert added.wait(SECONDS_MAX), "the notification waits for the fetch"
        yield from source.fetch(offset, stop)

    with ThreadPoolExecutor() as pool:
        asked = pool.submit(followed.between, 0, 20, answered_after_the_notification)
        for start in (10, 20):
            followed.add(start, start + 10, start)
        added.set()
        assert asked.result(SECONDS_MAX) == [0, 10]
    assert followed.between(10, 40, source.fetch) == [10, 20, 30]
    assert source.fetched == [0, 10, 30]


def test_a_fetch_that_fails_in_its_midst_leaves_what_came(source: Source) -> None:
    """The next one goes on behind that."""
    followed = Newest[int]()

    def fail(offset: int, stop: int) -> Iterator[tuple[int, int, int]]:
        yield from source.fetch(offset, stop - 10)
        raise ConnectionLost

    with pytest.raises(ConnectionLost):
        followed.between(0, 20, fail)
    assert followed.between(0, 20, source.fetch) == [0, 10]
    assert source.fetched == [0, 10]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 60)), max_size=20))
def test_whoever_asks_gets_what_a_fetch_would_give(asked: list[tuple[int, int]]) -> None:
    """In any order, from anywhere."""
    source, followed = Source(*range(0, 101, 7), 101), Newest[int]()
    for offset, size in asked:
        stop = min(offset + size, 101)
        expected = [one for _, _, one in source.fetch(offset, stop)]
        assert followed.between(offset, stop, source.fetch) == expected
