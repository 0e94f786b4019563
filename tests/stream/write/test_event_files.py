"""Events as files: what is around a file, what goes wrong with it, and what Python expects of one."""

from __future__ import annotations

import gc
import io
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest

from penstock.cpo import open_cpo
from penstock.errors import BadArgument, DiskFull, EventAborted, EventClosed, StoreClosed, TransactionEnded
from penstock.stream.read import EventInputStream
from penstock.stream.transaction import _transaction_logs
from penstock.stream.write._large_write import LargeWrite
from penstock.testing import MemoryDisk
from tests.stream.harness import STREAM
from tests.stream.large_harness import events_of, make_limits_small, store_and_manager, transaction_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from penstock.cpo import Cpo
    from penstock.stream import Engine
    from penstock.stream.write._large_write import EventOutputStream
    from penstock.testing import ManualClock

    Wrapper = Callable[[EventOutputStream], AbstractContextManager[object]]

MIB: Final = 1 << 20
WRAPPERS: Final[dict[str, Wrapper]] = {
    "BufferedWriter": io.BufferedWriter,
    "TextIOWrapper": lambda out: io.TextIOWrapper(io.BufferedWriter(out), write_through=True),
    "PythonFile": lambda out: pa.PythonFile(out, "w"),
}


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


def begin_event(store: Engine) -> EventOutputStream:
    store.create_stream(STREAM, exist_ok=True)
    return store.writer(STREAM).begin_write_event("k")


# What is around a file


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("size", [3, 2 * MIB])
def test_a_wrapper_that_closes_the_file_after_an_exception_commits_nothing(
    store: Engine, wrapper: str, size: int
) -> None:
    """It closes what it is around however its block ends; half an event would look like a whole one."""
    out = begin_event(store)

    def write_and_fail() -> None:
        with out, WRAPPERS[wrapper](out) as around:
            around.write("x" * size if wrapper == "TextIOWrapper" else b"x" * size)  # type: ignore[attr-defined]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert not events_of(store)
    with pytest.raises(BadArgument, match="it is aborted"):
        _ = out.pointer


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_file_that_is_closed_in_its_block_is_an_event_at_the_end_of_it(store: Engine, wrapper: str) -> None:
    """A caller that closes it is done with writing; only the block knows whether all went well."""
    with begin_event(store) as out:
        with WRAPPERS[wrapper](out) as around:
            around.write("text" if wrapper == "TextIOWrapper" else b"text")  # type: ignore[attr-defined]
        assert out.closed
        with pytest.raises(EventClosed, match="written at the end of its block"):
            out.write(b"more")
        with pytest.raises(BadArgument, match="written at the end of its block"):
            _ = out.pointer
        assert not events_of(store)
    assert store.fetch_event(out.pointer) == b"text"
    out.close()
    with pytest.raises(EventClosed), out:
        pass


def test_a_file_that_is_closed_in_its_block_may_still_be_aborted(store: Engine) -> None:
    """The end of the block has the last word, and so has who aborts."""
    with begin_event(store) as out:
        out.write(b"x")
        out.close()
        out.abort()
    assert not events_of(store)


# What goes wrong


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("has_block", [False, True])
def test_an_error_that_was_swallowed_is_told_again_at_the_end(
    store: Engine, has_block: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ends well with its event missing has lost it without a word."""
    out = begin_event(store)

    def refuse(*_: object) -> None:
        raise DiskFull("a plog")

    def write_badly() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LargeWrite, "write", refuse)
            with pytest.raises(DiskFull):
                out.write(bytes(100))
        with pytest.raises(EventAborted, match="no space left"):
            out.write(b"more")

    def write_in_block() -> None:
        with out:
            write_badly()

    if has_block:
        end = write_in_block
    else:
        write_badly()
        end = out.close
    with pytest.raises(EventAborted, match="no space left") as caught:
        end()
    assert isinstance(caught.value.cause, DiskFull)
    out.close()
    assert not events_of(store)
    out = begin_event(store)
    write_badly()
    out.abort()
    out.close()  # who aborts knows


@pytest.mark.usefixtures("small")
def test_an_abort_in_the_middle_of_a_write_is_what_the_writer_is_told(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread gave the transaction up; that some log is not there any more is no answer."""
    store.create_stream(STREAM)
    transaction = store.transactional_writer(STREAM).begin()
    out = transaction.begin_write_event("k")
    out.write(bytes(200))
    send = LargeWrite._send

    def abort_and_send(write: LargeWrite, data: bytes, *, partial: bool) -> None:
        transaction.abort()
        send(write, data, partial=partial)

    monkeypatch.setattr(LargeWrite, "_send", abort_and_send)
    with pytest.raises(TransactionEnded, match="it was aborted"):
        out.write(bytes(200))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [3, 500])
def test_an_event_of_a_transaction_that_was_lost_sight_of_is_no_part_of_it(cpo: Cpo, size: int) -> None:
    """It cannot be closed any more, so it would be in the way of the commit for ever; other events are not touched."""
    with store_and_manager(MemoryDisk(), cpo) as (store, manager):
        store.create_stream(STREAM)
        transaction = store.transactional_writer(STREAM).begin()
        transaction.write_event(bytes(300), key="k")
        lost = transaction.begin_write_event("k")
        lost.write(bytes(size))
        with pytest.raises(BadArgument, match="1 events that are not closed"):
            transaction.commit()
        del lost
        gc.collect()
        store.maintain()
        transaction.write_event(b"small", key="k")
        transaction.commit()
        assert events_of(store) == [bytes(300), b"small"]
        assert not transaction_logs(manager)


@pytest.mark.parametrize("kind", ["events", "file"])
def test_writing_to_a_transaction_keeps_it_open(
    store: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An upload that takes longer than the lease is active all the time, and needs no ping besides."""
    monkeypatch.setattr("penstock.client._transaction._SEND_EVERY_S", 0.0)  # of a clock that the test does not set
    store.create_stream(STREAM)
    transaction = store.transactional_writer(STREAM).begin(lease=10.0)
    out = transaction.begin_write_event("k")
    for _ in range(5):
        clock.advance(9.0)
        transaction.write_event(b"x") if kind == "events" else out.write(b"x")
        store.maintain()
    out.close()
    transaction.commit()
    clock.advance(11.0)
    assert transaction.status == "committed"


@pytest.mark.usefixtures("small")
def test_a_transaction_over_too_many_segments_says_why_it_failed(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones may go to any number of segments; that one of its logs is too many is nothing a user can guess."""
    monkeypatch.setattr(_transaction_logs, "LOGS_MAX", 2)
    store.create_stream(STREAM, 4)
    transaction = store.transactional_writer(STREAM).begin()

    def write_many() -> None:
        for number in range(100):
            transaction.write_event(bytes(50), key=str(number))
        transaction.commit()  # a client has some of them in its buffer

    with pytest.raises(BadArgument, match="each segment that small ones go to another"):
        write_many()
    with pytest.raises(TransactionEnded, match=r"small ones go to another|could not be sent"):
        transaction.commit()


def test_a_transactional_writer_that_is_closed_begins_nothing(store: Engine) -> None:
    """What was begun before goes on: it has a lease of its own."""
    store.create_stream(STREAM)
    with store.transactional_writer(STREAM, "w") as writer:
        transaction = writer.begin()
        transaction.write_event(b"x")
    with pytest.raises(StoreClosed, match="transactional writer of stream"):
        writer.begin()
    transaction.commit()
    assert writer.get(transaction.id).status == "committed"
    writer.close()


# What Python expects


def test_a_file_cannot_be_used_the_other_way_round(store: Engine) -> None:
    """The standard library tries things out, and catches this error."""
    with begin_event(store) as out:
        assert out.write(np.zeros((0, 4)).data) == 0
        refused: list[Callable[[], object]] = [out.read, lambda: out.read(1), out.readall, out.readline]
        refused += [out.fileno, lambda: out.seek(0), lambda: out.truncate(0)]
        for use in refused:
            with pytest.raises(io.UnsupportedOperation):
                use()
    with store.fetch_event_as_stream(out.pointer) as event:
        for write in (lambda: event.write(b"x"), lambda: event.writelines([b"x"]), lambda: event.truncate(0)):
            with pytest.raises(io.UnsupportedOperation):
                write()
        for place in (1.5, "1", None):
            with pytest.raises(TypeError):
                event.seek(place)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                event.skip(place)  # type: ignore[arg-type]


def test_lines_of_an_event_are_not_read_byte_by_byte(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python does that with a file that cannot look ahead, and a line of 100 bytes takes forty times as long."""
    lines = [b"line %d of a table with a few columns\n" % number for number in range(100)] + [b"x" * 3 * MIB, b"\nlast"]
    with begin_event(store) as out:
        out.write(b"".join(lines))
    calls, read_into = 0, EventInputStream.readinto

    def counted(self: EventInputStream, buffer: bytearray) -> int:
        nonlocal calls
        calls += 1
        return read_into(self, buffer)

    monkeypatch.setattr(EventInputStream, "readinto", counted)
    with store.fetch_event_as_stream(out.pointer) as event:
        assert list(event) == [*lines[:100], lines[100] + b"\n", b"last"]
    assert calls < 1000
    with pytest.raises(EventClosed):
        event.peek()


def test_a_closed_file_is_a_value_error_as_everywhere_in_python(store: Engine) -> None:
    """What is around a file knows no errors but Python's own; ours say more, and are those, too."""
    out = begin_event(store)
    out.write(b"x")
    out.close()
    event = store.fetch_event_as_stream(out.pointer)
    event.close()
    used: list[Callable[[], object]] = [
        out.tell,
        out.writable,
        lambda: out.write(b"x"),
        event.tell,
        event.readable,
        event.seekable,
        event.read,
        event.readall,
        lambda: event.seek(0),
        lambda: event.skip(1),
    ]
    for use in used:
        with pytest.raises(ValueError, match="closed") as caught:
            use()
        assert isinstance(caught.value, EventClosed)
