"""``penstock tail``."""

from __future__ import annotations

import io
import json
import queue
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cli import main
from penstock.cli._last import even_shares, last_events
from penstock.cli.tail import _follow
from penstock.errors import DataTruncated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from penstock.stream import Engine
    from tests.cli.conftest import Call

PATIENCE_S = 60


class Screen(io.BytesIO):
    """Takes what is printed; whoever waits for it gets it in the moment it is there to be seen."""

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


def interrupt(signum: int = signal.SIGINT) -> None:
    """Press Ctrl-C: the main thread waits, so it is the one to be told."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signum)


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
def test_wrong_call_is_refused(call: Call, shared: Engine, arguments: list[str], code: int) -> None:
    """No group is left behind."""
    result = call("tail", *arguments)
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    assert shared.reader_groups() == []


@pytest.mark.usefixtures("stream")
def test_follow_prints_each_event_as_it_arrives(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is written only when the one before was seen; it ends with the limit, and its group is gone."""
    write(shared, b"old", b"last")
    seen = []

    def meanwhile(screen: Screen) -> None:
        for number in range(4):
            seen.append(screen.next())
            write(shared, b"new %d" % number)

    code, shown = tail_while(monkeypatch, ["a/b", "-f", "-n", "1", "--limit", "4"], meanwhile)
    assert (code, shown) == (0, b"last\nnew 0\nnew 1\nnew 2\n")
    assert seen == shown.splitlines()
    assert shared.reader_groups() == []


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


@pytest.fixture
def hangup() -> Iterator[None]:
    """Let SIGHUP end this process, as it does not under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("stream", "hangup")
def test_follow_ends_without_a_word(
    shared: Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], signum: int
) -> None:
    """Ctrl-C is how it is meant to end; a closed terminal and a kill leave nothing behind either."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def meanwhile(screen: Screen) -> None:
        write(shared, b"event")
        screen.next()
        interrupt(signum)

    code, shown = tail_while(monkeypatch, ["a/b", "-f"], meanwhile)
    assert (code, shown, capfd.readouterr().err) == (130, b"event\n", "")
    assert shared.reader_groups() == []
    assert {one: signal.getsignal(one) for one in before} == before


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
    """It says why it ends, and its group is gone, too."""

    def meanwhile(screen: Screen) -> None:
        write(shared, b"event")
        screen.next()
        shared.seal_stream("a/b")
        shared.delete_stream("a/b")

    code, shown = tail_while(monkeypatch, ["a/b", "-f"], meanwhile)
    assert code in (0, 1), "0 if it saw the seal before the end"
    assert shown == b"event\n"
    assert shared.reader_groups() == []


@pytest.mark.usefixtures("stream")
def test_follow_tells_what_cannot_be_read_and_goes_on(
    shared: Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An event that retention took away meanwhile is no reason to stop."""
    from penstock.stream import Reader  # noqa: PLC0415 - patched below

    errors = [DataTruncated("place", head="head"), DataTruncated("place", head="head")]
    read_batch = Reader.read_batch
    monkeypatch.setattr(Reader, "read_batch", lambda reader: _raise(errors.pop()) if errors else read_batch(reader))
    write(shared, b"old")

    def meanwhile(screen: Screen) -> None:
        screen.next()
        write(shared, b"new")

    code, shown = tail_while(monkeypatch, ["a/b", "-f", "--limit", "2"], meanwhile)
    assert (code, shown) == (0, b"old\nnew\n")
    assert len(capfd.readouterr().err.splitlines()) == 2


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.usefixtures("stream")
def test_follow_deletes_what_was_left_by_one_that_was_killed(call: Call, shared: Engine) -> None:
    """Retention by consumption would wait for such a group for ever; those of users stay."""
    shared.create_reader_group("penstock-tail-1700000000000-0123", ["a/b"])
    shared.create_reader_group("mine", ["a/b"])
    shared.seal_stream("a/b")
    assert call("tail", "a/b", "-f").code == 0
    assert shared.reader_groups() == ["mine"]


@pytest.mark.usefixtures("stream")
def test_follow_leaves_the_group_of_another_that_has_just_begun(
    shared: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the creation of a group and its reader, another command must not take it for one left behind."""
    write(shared, b"event")
    shared.seal_stream("a/b")
    create = shared.create_reader_group

    def create_while_another_begins(*given: object, **options: object) -> object:
        monkeypatch.setattr(shared, "create_reader_group", create)
        group = create(*given, **options)  # type: ignore[arg-type]
        assert list(_follow(shared, shared.head("a/b"))) != []
        return group

    monkeypatch.setattr(shared, "create_reader_group", create_while_another_begins)
    assert [batch.num_rows for batch in _follow(shared, shared.head("a/b"))] == [1]
    assert shared.reader_groups() == []


def test_ignored_signals_stay_ignored(environment: dict[str, str], plant: Path) -> None:
    """In the background of a script Ctrl-C is not ours, under nohup a closed terminal; a polite kill always ends it."""
    ignoring = "trap '' INT HUP; exec penstock tail plant/readings -f -n 1"
    with subprocess.Popen(["bash", "-c", ignoring], cwd=plant, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"21.2\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 130
    with penstock.connect(plant / "penstock-data") as store:
        assert store.reader_groups() == ["dashboard"]


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
    """As many as were asked for, if there are so many, whoever has few."""
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

    def noted(part: penstock.SegmentRange) -> Iterator[pa.RecordBatch]:
        read.append(part.size)
        return read_range(part)

    monkeypatch.setattr(shared, "read_range", noted)
    assert [event.rstrip(b"\0") for event in events_in(shared, 2)] == [b"39 98", b"39 99"]
    assert sum(read) < shared.stream("a/b").size_bytes / 2
    assert len(events_in(shared, 2500)) == 2500
    assert len(events_in(shared, 9999)) == 4000
