"""The reference implementation of FTN18 in Node: its clients and its server, in one process that tests drive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections import defaultdict
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PACKAGES", "Received", "Reference", "ReferenceFailed", "missing", "reference"]

_ROOT: Final = Path(__file__).parent.parent.parent
_FOLDER: Final = Path(__file__).parent / "reference"
PACKAGES: Final = _ROOT / ".futoin" / "node_modules"
_LONG_S: Final = 60


def missing() -> str | None:
    """Return why the reference implementation cannot run here; None if it can."""
    if shutil.which("node") is None:
        return "Node is not installed: apt-get install nodejs npm"
    if not PACKAGES.is_dir():
        return "the reference implementation of FutoIn is not installed: run make setup"
    return None


class ReferenceFailed(Exception):
    """What a call of the reference implementation failed with; ``name`` is FutoIn's."""

    def __init__(self, name: str, info: str) -> None:
        super().__init__(f"{name}: {info}")
        self.name = name


@dataclass
class Received:
    """What a reference receiver has reported."""

    events: list[dict[str, Any]] = field(default_factory=list)
    connections: list[list[int]] = field(default_factory=list)  # the sequence numbers of each
    ids: list[list[int]] = field(default_factory=list)  # the events of each
    errors: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def numbers(self) -> list[int]:
        """The numbers that tests give to events."""
        return [event["data"]["n"] for event in self.events]

    def note(self, line: dict[str, Any]) -> None:
        """Take a report."""
        with self.changed:
            if line["event"] == "events":
                self.events += line["events"]
                self.ids = self.ids or [[]]  # only JSON shows its sequence numbers
                self.ids[-1] += [int(event["id"]) for event in line["events"]]
            elif line["event"] == "seq":
                if line["seq"] == 0 or not self.connections:
                    self.connections.append([])
                    self.ids.append([])
                self.connections[-1].append(line["seq"])
            elif "error" in line:
                self.errors.append(line["error"])
            self.changed.notify_all()

    def wait(self, events: int) -> None:
        """Wait until so many events have come."""
        self._wait(lambda: len(self.events) >= events)

    def wait_for(self, event_id: int) -> None:
        """Wait until an event has come."""
        self._wait(lambda: bool(self.events) and int(self.events[-1]["id"]) >= event_id)

    def _wait(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, _LONG_S), f"{len(self.events)} events came; {self.errors[-3:]}"


class Reference:
    """A process of Node; threads may share it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._numbers = process, count(1)
        self._asked: dict[int, Future[Any]] = {}
        self._received: dict[str, Received] = defaultdict(Received)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def start(self, do: str, **command: object) -> Future[Any]:
        """Start a command of the driver."""
        number, asked = next(self._numbers), Future[Any]()
        self._asked[number] = asked
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": do, **command}) + "\n")
        self._process.stdin.flush()
        return asked

    def do(self, do: str, **command: object) -> Any:  # noqa: ANN401 - any JSON value
        """Return what a command returns."""
        return self.start(do, **command).result(_LONG_S)

    @contextmanager
    def face(self, kind: str, endpoint: str, credentials: str | None = None, **options: object) -> Iterator[Face]:
        """Open a face: ``gen``, ``poll`` or ``push``."""
        name = f"{kind}-{next(self._numbers)}"
        options = {"limitZone": "unlimited"} | options  # else a client refuses its own calls above ten a second
        self.do("open", name=name, face=kind, endpoint=endpoint, credentials=credentials, options=options)
        try:
            yield Face(self, name, self._received[name])
        finally:
            self.do("close", name=name)

    @contextmanager
    def receiver(
        self, kind: str, endpoint: str, credentials: str | None = None, **options: object
    ) -> Iterator[Received]:
        """Start a receiver: ``reliable`` or ``live``."""
        name = f"{kind}-{next(self._numbers)}"
        self.do("receive", name=name, kind=kind, endpoint=endpoint, credentials=credentials, options=options)
        try:
            yield self._received[name]
        finally:
            self.do("close", name=name)

    @contextmanager
    def server(
        self, port: int, database: dict[str, str], options: dict[str, int] | None = None, **users: str
    ) -> Iterator[ReferenceServer]:
        """Serve an event stream from a database that has its tables."""
        name = f"server-{next(self._numbers)}"
        self.do("serve", name=name, port=port, database=database, users=users, options=options)
        try:
            yield ReferenceServer(self, name)
        finally:
            self.do("close", name=name)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "receiver" in said:
                self._received[said["receiver"]].note(said)
            elif "error" in said:
                self._asked.pop(said["id"]).set_exception(ReferenceFailed(said["error"], said["info"]))
            else:
                self._asked.pop(said["id"]).set_result(said["result"])


@dataclass(frozen=True)
class ReferenceServer:
    """A server of the reference implementation."""

    node: Reference
    name: str

    def query(self, sql: str) -> None:
        """Run a statement in its database, on its own connection."""
        self.node.do("query", name=self.name, sql=sql)


@dataclass(frozen=True)
class Face:
    """A client of the reference implementation."""

    node: Reference
    name: str
    reports: Received

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - any JSON value
        """Call a function of the server."""
        return self.node.do("call", name=self.name, method=method, args=arguments)

    def add(self, numbers: range, *, kind: str = "TEST", at_once: int = 4) -> Future[list[tuple[int, str]]]:
        """Start to add numbered events; the result has each number with its id, in the order of the answers."""
        first, total = numbers.start, len(numbers)
        return self.node.start(
            "addAll", name=self.name, type=kind, **{"from": first, "count": total, "atOnce": at_once}
        )


@contextmanager
def reference() -> Iterator[Reference]:
    """Start Node for the block."""
    process = subprocess.Popen(
        ["node", "--no-warnings", str(_FOLDER / "driver.js")],
        env=os.environ | {"NODE_PATH": f"{PACKAGES}:{_FOLDER / 'sqlite'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    node = Reference(process)
    try:
        yield node
    finally:
        assert process.stdin is not None
        process.kill()  # a process of another test may have a copy of its pipe, so that its end is never read
        process.stdin.close()
        process.wait(_LONG_S)
        node._reading.join(_LONG_S)
        assert process.stdout is not None
        process.stdout.close()
