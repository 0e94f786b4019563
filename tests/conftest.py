"""Settings for all tests."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
import uvicorn.server
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from penstock.plog import FilePlogs
from tests.azure import azurite
from tests.plog_backend import BACKEND, GROUPS, SAMPLED, Buckets, reason_on_disk
from tests.postgres import Postgres, missing, postgres_server
from tests.s3 import BUCKET, s3_server
from tests.sampling import EXPLORES, examples
from tests.warm_python import warm_python

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# A slow machine is not a bug: no test fails because one of its examples took long. The same examples every time, so
# that a change fails for what it changed; PENSTOCK_EXPLORE=1 looks for new ones, and for more.
settings.register_profile("penstock", deadline=None, derandomize=not EXPLORES, max_examples=examples(100))
settings.load_profile("penstock")

# Spark's tests are short: compiling to the end what runs once costs more than it brings. make test leaves an archive of
# Java's classes, with which Spark starts twice as quickly.
_CLASSES: Final = Path(sys.prefix) / "spark.jsa"
_SHARED: Final = f" -XX:SharedArchiveFile={_CLASSES} -Xlog:disable" if _CLASSES.exists() else ""
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{_SHARED}")

# A script that runs the tests in the background ignores SIGINT, and every process below it would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Owner processes of folders that no test needs any more make room.
os.environ["PENSTOCK_OWNER_IDLE_S"] = "2"

# Tests start hundreds of processes. Without compiled modules, each of them would compile all of Penstock first.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A new store fills its journal with zeros; a small journal makes a new store in a fraction of the time.
_defaults = FilePlogs.__init__.__kwdefaults__
assert _defaults is not None
_defaults["journal_size"] = 1 << 20

# Tests wait for thousands of syncs, whose effect none of them can see: only a power loss shows it, and RecordingDisk
# simulates those. So the folders of tests are in memory, where there is enough of it.
_MEMORY: Final = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


class _QuickAsyncio:
    """What uvicorn takes for asyncio: it looks every 0.1 s whether to end, and then waits as long for connections."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - anything of asyncio
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


uvicorn.server.asyncio = _QuickAsyncio()  # type: ignore[assignment,attr-defined]  # tests end hundreds of servers

_ON_SPARK: Final = (
    "tests/spark/",
    "tests/cli/test_cli_commands.py::test_example_runs",
    "tests/cli/test_cli_demo",
    "tests/cli/test_cli_jobs",
)
_BESIDE_SPARK: Final = (  # with a Spark of their own, or with none
    "tests/spark/test_futoin.py",
    "tests/spark/test_killed_jobs.py::test_a_job_that_is_interrupted_ends_well",
    "tests/spark/test_secrets.py::test_the_log_of_a_driver_does_not_tell_secrets",
)
_ON_CLUSTER: Final = "tests/spark/test_cluster.py"
_ON_POSTGRESQL: Final = ("tests/events/test_outbox.py", "tests/cpo/", "tests/server/test_hand_over.py")
_ON_SOURCES: Final = ("tests/test_dependencies.py", "tests/test_seeds.py", "tests/test_tidy.py")
_ON_BROWSER: Final = "tests/console/test_browser"


@pytest.fixture(scope="session")
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that starts at once, with a ``penstock`` beside it."""
    with warm_python(tmp_path_factory.mktemp("python")) as executable:
        yield executable


@pytest.fixture(scope="session")
def python_of_spark(quick_python: Path) -> Iterator[None]:
    """Let a Spark that this process starts have a Python that starts at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(quick_python))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, for tests whose names have "postgresql" in them, as they are or by a parameter."""
    if reason := missing():
        pytest.skip(reason)
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of this test run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def s3_environment(run_folder: Path) -> Iterator[dict[str, str]]:
    """The variables of the environment that lead to the S3 server of this test run."""
    with s3_server(run_folder / "s3") as environment:
        yield environment


@pytest.fixture(scope="session")
def azurite_environment(run_folder: Path) -> Iterator[dict[str, str]]:
    """The variables of the environment that lead to the Azure server of this test run."""
    if reason := azurite.missing():
        pytest.skip(reason)
    with azurite.azurite_server(run_folder / "azurite") as environment:
        yield environment


@pytest.fixture
def s3_address(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in S3 that this test has to itself."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def azurite_address(azurite_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in Azure that this test has to itself."""
    for name, value in azurite_environment.items():
        monkeypatch.setenv(name, value)
    with azurite.azurite_container(azurite_environment) as container:
        yield f"az://{container}/{uuid4().hex}"


@pytest.fixture(autouse=True)
def buckets(request: pytest.FixtureRequest) -> Iterator[Buckets]:
    """The buckets of this test; where it has its plogs in an object store, ``open_plogs`` opens them there."""
    backend = getattr(request, "param", BACKEND)
    if backend == "disk":
        yield Buckets("objects", "")
        return
    if backend not in GROUPS and (reason := reason_on_disk(request.node.nodeid)):
        pytest.skip(reason)
    real = {"s3": "s3_address", "azure": "azurite_address"}.get(backend)
    buckets = Buckets(backend, request.getfixturevalue(real) if real else "")
    with pytest.MonkeyPatch.context() as patch:
        buckets.redirect(patch)
        try:
            yield buckets
        finally:
            buckets.close()
    if buckets.opened:
        request.node.user_properties.append(("backend", backend))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """If the end of what all tests of this process share hangs, show where.

    At its time limit ``faulthandler`` shows a hundred threads, the newest first. A process with Spark has more of them,
    so the main thread would not be seen.
    """
    if nextitem is not None:
        return (yield)
    plugin: Any = item.config.pluginmanager.getplugin("faulthandler")
    shown = item.config.stash[plugin.fault_handler_stderr_fd_key]
    signal.signal(signal.SIGALRM, lambda *_: faulthandler.dump_traceback(shown, all_threads=False))
    signal.alarm(int(item.config.getini("faulthandler_timeout")) * 2 // 3)
    yield
    signal.alarm(0)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that are marked ``buckets`` in object stores, too."""
    if BACKEND == "disk" and any(metafunc.definition.iter_markers("buckets")):
        metafunc.parametrize("buckets", SAMPLED, indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that passed with plogs in an object store: not all tests that run open any."""
    passed = {report.nodeid for report in terminalreporter.getreports("passed")}
    backends = Counter(
        dict(report.user_properties).get("backend")
        for report in terminalreporter.stats.get("", ())
        if report.when == "teardown" and report.nodeid in passed
    )
    for backend in sorted(filter(None, backends)):
        terminalreporter.write_line(f"{backends[backend]} tests passed with plogs in the object store {backend!r}")


def _scope_of(nodeid: str) -> str:
    """Return what a test shares with others, or its own name."""
    if nodeid.startswith(_ON_CLUSTER):
        return "cluster"
    if nodeid.startswith(_ON_SOURCES):
        return "sources"
    if nodeid.startswith(_ON_BROWSER):
        return "browser"
    if nodeid.startswith(_ON_POSTGRESQL) and "postgresql" in nodeid:
        return "postgresql"
    is_on_spark = nodeid.startswith(_ON_SPARK) and not nodeid.startswith(_BESIDE_SPARK)
    return "spark" if is_on_spark else nodeid


class _Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns tests one by one, except that those which share something slow go to one process, and first.

    They share a Spark, a cluster, a PostgreSQL server, a browser, or the syntax trees of all sources.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _scope_of(nodeid)

    def schedule(self) -> None:
        """Assign tests to a process that replaces one that died: two, as it runs a test only when it knows the next."""
        is_replacement = self.collection is not None
        super().schedule()
        if is_replacement:
            super().schedule()

    def _reschedule(self, node: Any) -> None:  # noqa: ANN401 - no type is public
        if node in self.registered_collections:  # else it replaces one that died, and has not collected the tests yet
            super()._reschedule(node)

    def remove_node(self, node: Any) -> str | None:  # noqa: ANN401 - no type is public
        """Return the test that the process died of, and assign to others what it leaves.

        The base class would assign that test again, too, and lose one process after another to it.
        """
        units = self.assigned_work.pop(node)
        left = [nodeid for unit in units.values() for nodeid, is_done in unit.items() if not is_done]
        for nodeid in left[1:]:
            self.workqueue.setdefault(self._split_scope(nodeid), {})[nodeid] = False
        for other in self.assigned_work:
            self._reschedule(other)
        return left[0] if left else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:  # noqa: ANN401 - no type is public
    """Return the scheduler that assigns tests to processes."""
    return _Scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not look for garbage while tests are collected: it takes a fifth of the time, and there is none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that no process is still busy with one when the others have finished."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
    for item in items:
        if {"spark", "spark_of_all"}.intersection(getattr(item, "fixturenames", ())):
            assert _scope_of(item.nodeid) == "spark", f"{item.nodeid} would start another Spark: see _BESIDE_SPARK"
    gc.freeze()  # the tests themselves are never garbage, and looking at all of them takes long


def pytest_runtest_setup() -> None:
    """Keep Spark's loggers from giving pytest's handler their own format: ``caplog.text`` would be JSON then."""
    spark_logger = sys.modules.get("pyspark.logger.logger")
    if spark_logger is not None:
        spark_logger.PySparkLogger.addHandler = logging.Logger.addHandler
