"""Servers that share a store: in this process, or each in its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.server import Config
from tests.server.apart import SERVE, eventually, free_port

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

LONG_S = 60


def shared(tmp_path: Path, name: str, **settings: object) -> dict[str, Any]:
    """Return the settings of one of the servers that share the store in a folder."""
    addresses = {"plogs": f"file:{tmp_path}/plogs", "cpo": f"sqlite:{tmp_path}/cpo.db"}
    return {"store": str(tmp_path / name), **addresses, "port": 0, "http_port": 0, "anonymous": True} | settings


def config_of(tmp_path: Path, name: str, **settings: object) -> Config:
    return Config(**shared(tmp_path, name, **settings))


def ask(http_port: int, path: str = "/healthz", method: str = "GET") -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", http_port, timeout=LONG_S)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def status_of(http_port: int) -> str:
    try:
        return str(json.loads(ask(http_port)[1])["status"])
    except OSError:
        return "away"


def sent_bytes(http_port: int) -> float:
    """Return how many bytes of events a server has sent."""
    found = re.search(r"^penstock_sent_bytes_total (\S+)$", ask(http_port, "/metrics")[1], re.MULTILINE)
    assert found is not None
    return float(found[1])


class Servers:
    """Some servers of one store, each in its own process, at ports that they keep."""

    def __init__(self, folder: Path, count: int, **settings: object) -> None:
        folder.mkdir(exist_ok=True)
        self._settings = [
            shared(folder, f"server-{number}", port=free_port(), http_port=free_port(), **settings)
            for number in range(count)
        ]
        self.processes = [self._started(given) for given in self._settings]
        places = [f"127.0.0.1:{given['port']}" for given in self._settings]
        self.addresses = [f"penstock://{place}" for place in places]
        self.address = f"penstock://{','.join(places)}"

    def _started(self, given: dict[str, Any]) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(SERVE), json.dumps(given)]
        with Path(f"{given['store']}.log").open("a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def await_ready(self, number: int) -> None:
        """Return when a server has started, and stands by or serves."""
        stdout = self.processes[number].stdout
        assert stdout is not None
        assert stdout.readline(), Path(f"{self._settings[number]['store']}.log").read_text()

    def start_again(self, number: int) -> None:
        self._end(number)
        self.processes[number] = self._started(self._settings[number])
        self.await_ready(number)

    def status(self, number: int) -> str:
        return status_of(self._settings[number]["http_port"])

    def sent_bytes(self, number: int) -> float:
        """Return how many bytes of events a server has sent."""
        return sent_bytes(self._settings[number]["http_port"])

    def owner(self) -> int:
        """Return the number of the server that serves."""
        owners: list[int] = []

        def is_there() -> bool:
            owners[:] = [number for number in range(len(self.processes)) if self.status(number) == "ok"]
            return bool(owners)

        eventually(is_there)
        return owners[0]

    def __enter__(self) -> Self:
        for number in range(len(self.processes)):
            self.await_ready(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
        for number in range(len(self.processes)):
            self._end(number)

    def _end(self, number: int) -> None:
        process = self.processes[number]
        process.wait(LONG_S)
        assert process.stdout is not None
        process.stdout.close()
