"""Metadata: replaying the records, or a snapshot of them, gives what the writer had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log._metadata import Metadata, snapshot_parts
from penstock.log._records import (
    Chain,
    Doomed,
    Drop,
    Full,
    Incremental,
    Init,
    Next,
    Record,
    Replace,
    Splice,
    Truncate,
    decode_records,
    encode_records,
)
from penstock.model import PlogId
from penstock.plog import APPEND_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = ("a", "b", "c")


def plog(number: int, names: tuple[str, str] = ("local", "main")) -> str:
    return str(PlogId(*names, f"{number:032x}"))


def described(metadata: Metadata) -> dict[str, Any]:
    """Return all that metadata say; the order of logs is not part of it."""
    return {
        "logs": {name: (log.start, log.sealed, log.active, log.next) for name, log in metadata.logs.items()},
        "doomed": list(metadata.doomed),
        "previous": metadata.previous,
        "own": (metadata.next, metadata.spare),
    }


def replayed(parts: Iterable[bytes]) -> Metadata:
    metadata = Metadata()
    for part in parts:
        for record in decode_records(part):
            metadata.apply(record)
    return metadata


class Writer:
    """Makes records as the protocols do, and keeps what the logs should be as plain lists."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.written: list[bytes] = []
        self.count = 10
        self.model: dict[str, list[tuple[str, int]]] = {}
        self.write(Chain([], plog(1), plog(2)))

    def new(self) -> str:
        self.count += 1
        return plog(self.count)

    def write(self, record: Record) -> None:
        self.metadata.apply(record)
        self.written.append(encode_records([record]))

    def init(self, name: str, _: int) -> None:
        if name not in self.model:
            self.write(Init(name, str(self.metadata.spare), self.new(), self.new()))
            self.model[name] = []

    def switch(self, name: str, length: int) -> None:
        if name in self.model:
            log = self.metadata.logs[name]
            self.model[name].append((str(log.active), length))
            self.write(Incremental(name, str(log.active), length, str(log.next), self.new()))

    def replace_next(self, name: str, _: int) -> None:
        if name in self.model:
            self.write(Next(name, self.new()))

    def truncate(self, name: str, place: int) -> None:
        if self.model.get(name):
            place %= len(self.model[name])
            self.write(Truncate(name, self.model[name][place][0]))
            del self.model[name][:place]

    def splice(self, name: str, length: int) -> None:
        source = next((other for other in self.model if other != name), None)
        if name in self.model and source is not None:
            own, taken = self.metadata.logs[name], self.metadata.logs[source]
            moved = self.model.pop(source) + ([(str(taken.active), length)] if length else [])
            if length % 2:
                self.model[name].append((str(own.active), 3))
                self.write(Splice(name, 3, source, length, str(own.next), self.new()))
            else:
                self.write(Splice(name, None, source, length, str(own.active), str(own.next)))
            self.model[name] += moved

    def merge(self, name: str, count: int) -> None:
        some = self.model.get(name, [])[:count]
        if some and "merged" not in self.model:
            self.write(Init("merged", str(self.metadata.spare), self.new(), self.new()))
            merged, length = str(self.metadata.logs["merged"].active), sum(length for _, length in some)
            self.write(Replace(name, some[0][0], len(some), "merged", length))
            self.model[name][: len(some)] = [(merged, length)]

    def drop(self, name: str, _: int) -> None:
        if self.model.pop(name, None) is not None:
            self.write(Drop(name))

    def sweep(self, _: str, count: int) -> None:
        for plog_id in list(self.metadata.doomed)[:count]:
            del self.metadata.doomed[plog_id]

    def sealed(self) -> dict[str, list[tuple[str, int]]]:
        logs = self.metadata.logs
        return {name: [(str(plog_id), length) for plog_id, length in log.sealed] for name, log in logs.items()}


KINDS = ("init", "switch", "switch", "replace_next", "truncate", "splice", "merge", "drop")
histories = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(0, 8)), max_size=30)


def lived(history: list[tuple[str, str, int]]) -> Writer:
    writer = Writer()
    for kind, name, number in history:
        getattr(writer, kind)(name, number)
    return writer


@given(histories)
def test_the_logs_are_what_the_records_say(history: list[tuple[str, str, int]]) -> None:
    """Each kind of record has one meaning, whatever came before it."""
    writer = lived(history)
    assert writer.sealed() == writer.model


@given(histories)
def test_no_plog_is_forgotten_and_none_has_two_owners(history: list[tuple[str, str, int]]) -> None:
    """Every plog that was ever announced is some log's, announced, or to be deleted: exactly one of these."""
    metadata = lived(history).metadata
    owned = [plog_id for log in metadata.logs.values() for plog_id in (*dict(log.sealed), log.active, log.next)]
    every = [*owned, *metadata.doomed, *([metadata.spare] if metadata.spare else [])]
    assert len(every) == len(set(every))


@given(histories)
def test_replaying_the_records_gives_what_the_writer_had(history: list[tuple[str, str, int]]) -> None:
    """The partition that was recovered is the partition that wrote."""
    writer = lived(history)
    assert described(replayed(writer.written)) == described(writer.metadata)


@given(histories, st.integers(0, 9))
def test_a_snapshot_says_all_that_the_records_said(history: list[tuple[str, str, int]], swept: int) -> None:
    """A new metadata plog starts with it, and the old one is deleted."""
    writer = lived(history)
    writer.sweep("", swept)
    chain = Chain([(plog(1), 5)], plog(3), str(writer.metadata.spare))
    found = replayed(snapshot_parts(writer.metadata, chain))
    writer.metadata.apply(chain)
    assert described(found) == described(writer.metadata)


@pytest.mark.parametrize("names", [("local", "main"), ("c" * 255, "g" * 255)], ids=["short names", "longest names"])
@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 10_000])
def test_a_snapshot_of_a_long_log_comes_in_parts_below_the_append_limit(count: int, names: tuple[str, str]) -> None:
    """One append of it all would be refused, and the metadata log could not switch any more."""
    metadata = Metadata()
    metadata.apply(Init("other", plog(1), plog(2), plog(3)))
    metadata.apply(Init("long", plog(4, names), plog(5, names), plog(6)))
    for number in range(count):
        metadata.apply(Incremental("long", str(metadata.logs["long"].active), 7, str(metadata.logs["long"].next),
                                   plog(10 + number, names)))  # fmt: skip
    metadata.doom(PlogId.parse(plog(1_000_000 + number, names)) for number in range(count))
    chain = Chain([], plog(7), plog(8))
    parts = snapshot_parts(metadata, chain)
    assert max(map(len, parts)) <= APPEND_SIZE_MAX
    metadata.apply(chain)
    assert described(replayed(parts)) == described(metadata)
    assert isinstance(decode_records(parts[0])[0], Chain)


def test_many_small_logs_come_in_parts_below_the_append_limit() -> None:
    """Ten thousand logs are one partition, too."""
    metadata = Metadata()
    for number in range(10_000):
        metadata.apply(Init(f"{number:0255}", plog(3 * number), plog(3 * number + 1), plog(3 * number + 2)))
    chain = Chain([], plog(1 << 60), plog(1 << 61))
    parts = snapshot_parts(metadata, chain)
    assert len(parts) > 2
    assert max(map(len, parts)) <= APPEND_SIZE_MAX
    metadata.apply(chain)
    assert described(replayed(parts)) == described(metadata)


def test_a_snapshot_can_be_taken_while_doomed_plogs_are_swept() -> None:
    """The sweep runs in the background and takes no lock; a metadata switch must not stumble over it."""
    metadata = Metadata()

    class Impatient(PlogId, frozen=True):
        def __str__(self) -> str:
            metadata.doomed.popitem()
            return super().__str__()

    metadata.doom([Impatient("local", "main", f"{number:032x}") for number in range(4)])
    assert snapshot_parts(metadata, Chain([], plog(7), plog(8)))


@pytest.mark.parametrize(
    "record",
    [
        Incremental("none", plog(1), 1, plog(2), plog(3)),
        Incremental("a", plog(9), 1, plog(2), plog(3)),
        Next("none", plog(1)),
        Truncate("none", plog(1)),
        Truncate("a", plog(99)),
        Splice("none", None, "a", 1, plog(1), plog(2)),
        Splice("a", None, "none", 1, plog(1), plog(2)),
        Drop("none"),
        Full("none", True, 0, [(plog(1), 1)], plog(2), plog(3)),
        Doomed(["no id"]),
        Init("b", "no id", plog(1), plog(2)),
        Chain([("no id", 1)], plog(1), plog(2)),
    ],
    ids=str,
)
def test_a_record_that_does_not_follow_is_refused(record: Record) -> None:
    """KeyError or ValueError is what recovery turns into a clear error that names the plog."""
    metadata = Metadata()
    metadata.apply(Init("a", plog(1), plog(2), plog(3)))
    with pytest.raises((KeyError, ValueError)):
        metadata.apply(record)
