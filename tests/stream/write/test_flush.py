"""The pump: comes again while there is something to do, and rests when there is not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.stream.write._flush import Pump

if TYPE_CHECKING:
    from penstock.stream import Engine

STREAM = "scope/stream"
LONG = 30.0
NOT_EXCEPTIONS = (SystemExit, KeyboardInterrupt, GeneratorExit)  # which ``except Exception`` lets pass


class _Pumped:
    """Has something to do for a few times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.rests = threading.Event()

    def pump(self) -> bool:
        self.left -= 1
        if self.left <= 0:
            self.rests.set()
        return self.left > 0


def test_it_comes_again_until_nothing_is_left_and_again_when_it_is_asked() -> None:
    """A busy writer asks once; one that was left alone asks again."""
    pump, first, second = Pump(), _Pumped(5), _Pumped(2)
    for one in (first, second):
        pump.add(one)
    assert first.rests.wait(LONG)
    assert second.rests.wait(LONG)
    second.rests.clear()
    pump.add(second)
    assert second.rests.wait(LONG)
    pump.close()
    assert (first.left, second.left) == (0, -1)


def test_it_does_not_linger_where_a_caller_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement from a server, waited for with a time limit, took six times as long as one without."""
    monkeypatch.setattr("penstock.stream.write._flush.LINGER_S", 1000.0)
    pump, first, second = Pump(), _Pumped(1), _Pumped(1)
    pump.add(first, at_once=True)
    assert first.rests.wait(LONG)
    pump.add(second, at_once=True)
    assert second.rests.wait(LONG)
    pump.close()


def test_a_writer_in_use_wakes_it_once(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nothing was written to since it came asks for it with the next event."""
    store.create_stream(STREAM)
    asked: list[object] = []
    monkeypatch.setattr(Pump, "add", lambda _, writer: asked.append(writer))
    with store.writer(STREAM) as writer:
        alone = writer.write_event(b"alone")
        assert writer._open.pump()
        assert alone.done()
        writer.write_event(b"waited for").result()
        assert writer._open.pump(), "something was written since"
        assert asked == [writer._open]
        assert not writer._open.pump()
        writer.write_event(b"later").result()
        assert asked == [writer._open, writer._open]


def test_nothing_that_a_callback_raises_ends_it(store: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Its thread is that of all writers: sys.exit() in one callback would stop the events of others."""
    store.create_stream(STREAM)
    for error in (*NOT_EXCEPTIONS, ValueError):
        called, writer = threading.Event(), store.writer(STREAM)

        def fail(_: object, called: threading.Event = called, error: type[BaseException] = error) -> None:
            called.set()
            raise error

        writer.write_event(b"nobody waits for it").add_done_callback(fail)
        assert called.wait(LONG)
        again = threading.Event()
        writer.write_event(b"nor for this").add_done_callback(lambda _, again=again: again.set())  # type: ignore[misc]
        assert again.wait(LONG), f"{error} ended the pump"
    assert "a callback of an acknowledgement failed" in caplog.text


@pytest.mark.parametrize("error", [*NOT_EXCEPTIONS, ValueError])
def test_every_callback_is_called_once_whatever_those_before_raise(
    store: Engine, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Every callback is called, also where another one failed, and a waiting caller does not get its error."""
    store.create_stream(STREAM)
    called: list[str] = []

    def fail(_: object) -> None:
        called.append("failed")
        raise error("of a callback")

    with store.writer(STREAM) as writer:
        ack = writer.write_event(b"event")
        for callback in (fail, lambda _: called.append("first"), fail, lambda _: called.append("second")):
            ack.add_done_callback(callback)
        ack.result()
        writer.flush()
        ack.add_done_callback(fail)  # at once, and in the caller's own thread
    assert called == ["failed", "first", "failed", "second", "failed"]
    assert caplog.text.count("a callback of an acknowledgement failed") == 3


@pytest.mark.parametrize("error", [*NOT_EXCEPTIONS, MemoryError])
def test_a_writer_that_fails_is_not_the_end_of_the_others(error: type[BaseException]) -> None:
    """Whatever goes wrong with one of them, the others have events that no other thread flushes."""

    class Broken:
        def pump(self) -> bool:
            raise error

    pump, other = Pump(), _Pumped(2)
    pump.add(Broken())
    pump.add(other)
    assert other.rests.wait(LONG)
    pump.close()
