"""Print the path of a call through the files of Penstock: a durable write, and a read from a store of another process.

    python tools/callpath.py [--path]

It counts the files that a call visits, and how often a call leads from one file into another: in the thread that
calls, and, for a remote read, in the threads of the server that answer it. Calls inside the standard library and other
packages are not counted. With ``--path`` the functions are printed in order.
"""

from __future__ import annotations

import sys
import tempfile
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import penstock
from penstock.server import FlightService

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT: Final = str(Path(penstock.__file__).parent) + "/"
STREAM: Final = "demo/path"
WARM: Final = 3
TURNS: Final = 200
Calls = list[tuple[str, str]]


class Recording:
    """The functions of Penstock that a thread calls, in order: file and name."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def note(self, frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 - of the kind of event
        """Note an event of the profiler."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            self.calls.append((code.co_filename.removeprefix(ROOT), code.co_qualname))

    def run(self, call: Callable[[], object]) -> object:
        """Call something, and record what it calls in this thread."""
        sys.setprofile(self.note)
        try:
            return call()
        finally:
            sys.setprofile(None)


def shortest(call: Callable[[], object]) -> Recording:
    """Return the shortest of many recordings: now and then a call has to wake another thread, too."""
    recordings = [Recording() for _ in range(TURNS)]
    for recording in recordings:
        recording.run(call)
    return min(recordings, key=lambda recording: len(recording.calls))


def record_server(recording: Recording) -> None:
    """Record the calls of clients from now on, in the threads that gRPC makes."""
    for name in ("do_action", "do_get"):
        setattr(FlightService, name, _recorded(getattr(FlightService, name), recording))


def _recorded(method: Callable[..., object], recording: Recording) -> Callable[..., object]:
    @wraps(method)
    def run(*args: object) -> object:
        return recording.run(lambda: method(*args))

    return run


def show(title: str, calls: Calls, *, path: bool) -> None:
    """Print the counts, and the functions if wanted."""
    changes = sum(one[0] != other[0] for one, other in pairwise(calls))
    print(f"{title}: {len(calls)} calls in {len({file for file, _ in calls})} files, {changes} changes of file")
    before = ""
    for file, name in calls if path else ():
        print(f"    {file if file != before else '':<40} {name}")
        before = file


def main() -> None:
    """Open a store twice, as its owner and as a client, and measure."""
    path = "--path" in sys.argv[1:]
    read, answer = Recording(), Recording()
    record_server(answer)
    with tempfile.TemporaryDirectory() as folder, penstock.connect(folder) as owner:
        owner.create_stream(STREAM)
        with owner.writer(STREAM) as writer:
            for _ in range(WARM):
                writer.write_event(b"event").result()
            write = shortest(lambda: writer.write_event(b"event").result())
            with penstock.connect(folder) as client:
                group = client.create_reader_group("path", [STREAM], owner.tail(STREAM))
                with group.reader("r") as reader:
                    for _ in range(WARM):
                        writer.write_event(b"event").result()
                        assert reader.read_next_event(timeout=10.0) is not None
                    writer.write_event(b"event").result()
                    client.stream(STREAM)  # when it is answered, the client knows that the segment has grown
                    answer.calls.clear()
                    read.run(lambda: reader.read_next_event(timeout=10.0))
                    answered = list(answer.calls)
    show("a durable write_event().result()", write.calls, path=path)
    show("a remote read_next_event(), client", read.calls, path=path)
    show("a remote read_next_event(), server", answered, path=path)


if __name__ == "__main__":
    main()
