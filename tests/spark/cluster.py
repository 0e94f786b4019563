"""A cluster of Spark on this machine: a master and two workers, each a process as in a real one."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from tests.spark.processes import descendants, kill_session, start, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

__all__ = ["Cluster", "running_cluster"]

_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")


class Cluster:
    """What is known of a cluster that runs."""

    def __init__(self, master: str, workers: list[subprocess.Popen[bytes]], folder: Path) -> None:
        self.master: Final = master
        self._workers, self._folder = workers, folder

    def executor_of(self, pid: int) -> int:
        """Return the executor, a JVM, that has started a process of Python."""
        (found,) = [one for one in self._executors() if pid in descendants(one)]
        return found

    def _executors(self) -> list[int]:
        children = [pid for worker in self._workers for pid in descendants(worker.pid)]
        return [pid for pid in children if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def files(self) -> list[Path]:
        """Return what executors have logged, and all else that they have left."""
        return [path for path in self._folder.rglob("*") if path.is_file()]

    def told(self) -> str:
        """Return what all executors have logged."""
        return "".join(path.read_text() for path in self._folder.glob("work-*/app-*/*/stderr"))


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster whose files are in a folder; nothing of it is left when the block ends, however that is."""
    with ExitStack() as stack:

        def run(name: str, *args: str) -> subprocess.Popen[bytes]:
            command = [str(_CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
            log = folder / f"{len(logs)}.log"
            logs.append(log)
            process = start([*command, *args], log, SPARK_LOCAL_DIRS=str(folder), SPARK_DAEMON_MEMORY="256m")
            stack.callback(kill_session, process)
            return process

        logs: list[Path] = []
        master = run("master.Master", "--port", "0")
        until(master, lambda: _MASTER.search(logs[0].read_text()) is not None)
        found = _MASTER.search(logs[0].read_text())
        assert found is not None
        size = ["--cores", "1", "--memory", "1g"]
        workers = [
            run("worker.Worker", *size, "--work-dir", str(folder / f"work-{number}"), found[1]) for number in range(2)
        ]
        yield Cluster(found[1], workers, folder)
