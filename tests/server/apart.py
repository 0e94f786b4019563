"""A server in a process of its own, whose memory and threads are its own."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ports: Final = random.SystemRandom()
_given: Final[set[int]] = set()
SERVE: Final = """
    import json, sys
    from penstock.server import Config, run
    config = Config(**{"port": 0, "http_port": 0, **json.loads(sys.argv[1])})
    run(config, ready=lambda server: print(server.port, flush=True))
"""


@contextmanager
def server_apart(folder: Path, log: Path | None = None, **settings: object) -> Iterator[tuple[int, int]]:
    """Start one: its port, and its process; ``log`` is the file of what it writes to stderr."""
    given = json.dumps({"store": str(folder), **settings})
    with Path("/dev/null" if log is None else log).open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SERVE), given], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()
            process.wait()


def memory_peak(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def free_port() -> int:
    """Return a port that no other program takes by chance: it is below those that the system gives to connections.

    A process gets each port once, so that servers that are started later do not have to share one.
    """
    while True:
        port = _ports.randrange(20_000, 32_000)
        if port in _given:
            continue
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        _given.add(port)
        return port


def suspend(pid: int) -> None:
    """Stop a process with all of its threads, as Ctrl-Z does; the signal alone takes effect some time later."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(map(_is_stopped, Path(f"/proc/{pid}/task").iterdir())))


def _is_stopped(task: Path) -> bool:
    return task.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T"


def figures_of(http_port: int, token: str) -> dict[str, float]:
    """Return the figures of a server, by name and label."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{http_port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def eventually(holds: Callable[[], bool], seconds_max: float = 60.0) -> None:
    """Return when something holds that another thread or process brings about a moment later."""
    deadline = time.monotonic() + seconds_max
    while not holds():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)
