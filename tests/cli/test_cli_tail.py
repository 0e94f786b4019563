"""``penstock tail``."""

from __future__ import annotations

import io
import json
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cli import main
from penstock.cli._last import even_shares, last_events
from penstock.cli.tail import _follow

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from penstock.stream import Engine
    from tests.cli.conftest import Call

PATIENCE_S = 60


class Screen(io.BytesIO):
    """Takes what is printed; a thread that waits for it gets it as soon as it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.Queue[bytes] = queue.Queue()
        self._shown = 0

    def flush(self) -> None:
        new = self.getvalue()[self._shown :]
        self._shown += len(new)
        for line in new.splitlines():
            self.lines.put(line)

    def next(self) -> bytes:
        return self.lines.get(timeout=PATIENCE_S)


@pytest.fixture
def stream(shared: Engine) -> str:
    shared.create_stream("a/b")
    return "a/b"


def write(store: Engine, *events: bytes, key: str = "k") -> None:
    with store.writer("a/b") as writer:
        writer.write_batch(events, [key] * len(events))


def events_in(store: Engine, count: int) -> list[bytes]:
    batches = last_events(store, "a/b", end=store.tail("a/b"), count=count)
    return [event for batch in batches for event in batch.column("event").to_pylist()]


def tail_while(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], meanwhile: Callable[[Screen], object]
) -> tuple[int, bytes]:
    """Run the command, and something else in another thread; return the exit code and what was printed."""
    screen, trouble, over = Screen(), list[BaseException](), threading.Event()
    stdout = io.TextIOWrapper(screen)  # held to the end: it closes the screen when it goes

    def work() -> None:
        try:
            meanwhile(screen)
        except BaseException as error:  # noqa: BLE001 - told below; the command must not wait for ever
            trouble.append(error)
            if not over.is_set():
                interrupt()

    thread = threading.Thread(target=work)
    thread.start()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["penstock", "tail", *arguments])
        patch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as exit_info:
            main()
    over.set()
    thread.join()
    assert not trouble, trouble
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code, screen.getvalue()


def interrupt() -> None:
    """Press Ctrl-C: the main thread waits, so it is the one to be told."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", range(15, 25)),
        ("-n 3", range(22, 25)),
        ("-n 0", range(0)),
        ("--last 99", range(25)),
        ("--last 99 --limit 2", range(2)),
        ("--from head --limit 3", range(3)),
        ("--from head", range(25)),
        ("--from tail", range(0)),
    ],
)
@pytest.mark.usefixtures("stream")
def test_prints_the_last_events_or_those_from_a_place(
    call: Call, shared: Engine, options: str, expected: range
) -> None:
    """Ten, as tail does; --last says where to begin, --limit how many there are at most."""
    write(shared, *(b"%d" % number for number in range(25)))
    result = call("tail", "a/b", *options.split())
    assert (result.code, result.lines) == (0, [str(number) for number in expected])


def test_place_may_be_a_pointer_of_json(call: Call, shared: Engine, stream: str) -> None:
    """In a stream of one segment a pointer is a cut, so what one command prints the next one takes."""
    write(shared, b"one", b"two", b"three")
    lines = [json.loads(line) for line in call("tail", stream, "--json").lines]
    assert [line["event"] for line in lines] == ["one", "two", "three"]
    assert call("tail", stream, "--from", lines[1]["pointer"]).lines == ["two", "three"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a/c"], 1),
        (["a/c", "-f"], 1),
        (["a/b", "--from", "nonsense"], 2),
        (["a/b", "--from", "a/b:0@9999"], 1),
        (["a/b", "--from", "head", "-n", "3"], 2),
        (["a/b", "-n", "-1"], 2),
        (["a/b", "--limit", "0"], 2),
    ],
)
@pytest.mark.usefixtures("stream")
def test_wrong_call_is_refused(call: Call, arguments: list[str], code: int) -> None:
    """With a message, and nothing is printed."""
    result = call("tail", *arguments)
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err


@pytest.mark.usefixtures("stream")
def test_follow_prints_each_event_as_it_arrives(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is written only when the one before was seen; it ends with the limit."""
    write(shared, b"old", b"last")
    seen = []

    def meanwhile(screen: Screen) -> None:
        for number in range(4):
            seen.append(screen.next())
            write(shared, b"new %d" % number)

    code, shown = tail_while(monkeypatch, ["a/b", "-f", "-n", "1", "--limit", "4"], meanwhile)
    assert (code, shown) == (0, b"last\nnew 0\nnew 1\nnew 2\n")
    assert seen == shown.splitlines()


@pytest.mark.usefixtures("stream")
def test_follow_goes_on_across_scaling(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other segments are no reason to look away."""

    def meanwhile(screen: Screen) -> None:
        write(shared, b"before")
        assert json.loads(screen.next())["event"] == "before"
        shared.scale_stream("a/b", [0], [(0.0, 0.5), (0.5, 1.0)])
        write(shared, b"after")

    code, shown = tail_while(monkeypatch, ["a/b", "-f", "--limit", "2", "--json"], meanwhile)
    events = [json.loads(line) for line in shown.splitlines()]
    assert (code, [event["event"] for event in events]) == (0, ["before", "after"])
    assert shared.fetch_event(penstock.EventPointer.parse(events[1]["pointer"])) == b"after"


@pytest.mark.usefixtures("stream")
def test_follow_ends_without_a_word(
    shared: Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is how it is meant to end."""

    def meanwhile(screen: Screen) -> None:
        write(shared, b"event")
        screen.next()
        interrupt()

    code, shown = tail_while(monkeypatch, ["a/b", "-f"], meanwhile)
    assert (code, shown, capfd.readouterr().err) == (130, b"event\n", "")


@pytest.mark.usefixtures("stream")
def test_follow_ends_with_a_sealed_stream(call: Call, shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more can arrive: whether it is sealed meanwhile or was before."""

    def meanwhile(screen: Screen) -> None:
        write(shared, b"event")
        screen.next()
        shared.seal_stream("a/b")

    assert tail_while(monkeypatch, ["a/b", "-f"], meanwhile) == (0, b"event\n")
    assert call("tail", "a/b", "-f").lines == ["event"]


@pytest.mark.usefixtures("stream")
def test_follow_of_a_deleted_stream_is_an_error(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why it ends."""

    def meanwhile(screen: Screen) -> None:
        write(shared, b"event")
        screen.next()
        shared.seal_stream("a/b")
        shared.delete_stream("a/b")

    code, shown = tail_while(monkeypatch, ["a/b", "-f"], meanwhile)
    assert code in (0, 1), "0 if it saw the seal before the end"
    assert shown == b"event\n"


@pytest.mark.usefixtures("stream")
def test_follow_tells_what_cannot_be_read_and_goes_on(shared: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """An event that retention took away meanwhile is no reason to stop."""
    start = shared.head("a/b")
    write(shared, b"old")
    shared.truncate_stream("a/b", "tail")
    write(shared, b"new")
    shared.seal_stream("a/b")
    assert [batch["event"].to_pylist() for batch in _follow(shared, start)] == [[b"new"]]
    [line] = capfd.readouterr().err.splitlines()
    assert "truncated" in line


def test_follow_changes_nothing(shared: Engine) -> None:
    """Retention by consumption would take a reader group for a consumer, and delete what it has passed."""
    shared.create_stream("a/b", config=penstock.StreamConfig(retention=penstock.ByConsumption()))
    write(shared, b"event")
    events = _follow(shared, shared.head("a/b"))
    assert next(events)["event"].to_pylist() == [b"event"]
    assert shared.reader_groups() == []
    shared.seal_stream("a/b")
    assert list(events) == []


@pytest.mark.parametrize(
    ("available", "wanted", "expected"),
    [
        ([], 5, []),
        ([9, 9], 5, [2, 3]),
        ([9, 9, 9], 10, [3, 3, 4]),
        ([1, 9], 6, [1, 5]),
        ([9, 0, 1], 6, [5, 0, 1]),
        ([2, 2], 9, [2, 2]),
        ([5, 5], 0, [0, 0]),
    ],
)
def test_segments_give_even_shares(available: list[int], wanted: int, expected: list[int]) -> None:
    """As many as were asked for, if there are so many; segments with few events give what they have."""
    assert even_shares(available, wanted) == expected


@pytest.mark.usefixtures("stream")
def test_last_events_go_back_beyond_a_scale(shared: Engine) -> None:
    """Right after a split the new segments are empty; the last events are those before it."""
    write(shared, *(b"%d" % number for number in range(5)))
    shared.scale_stream("a/b", [0], [(0.0, 0.5), (0.5, 1.0)])
    assert events_in(shared, 3) == [b"2", b"3", b"4"]
    write(shared, b"new")
    assert events_in(shared, 3) == [b"3", b"4", b"new"]
    shared.truncate_stream("a/b", shared.tail("a/b"))
    assert events_in(shared, 3) == []


@pytest.mark.usefixtures("stream")
def test_last_events_of_a_large_segment_read_only_its_end(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the end costs the same in a large stream as in a small one."""
    for number in range(40):
        write(shared, *(b"%d %d" % (number, one) + bytes(1000) for one in range(100)))
    read = []
    read_range = shared.read_range

    def noted(part: penstock.SegmentRange) -> pa.RecordBatchReader:
        read.append(part.size)
        return read_range(part)

    monkeypatch.setattr(shared, "read_range", noted)
    assert [event.rstrip(b"\0") for event in events_in(shared, 2)] == [b"39 98", b"39 99"]
    assert sum(read) < shared.stream("a/b").size_bytes / 2
    assert len(events_in(shared, 2500)) == 2500
    assert len(events_in(shared, 9999)) == 4000
