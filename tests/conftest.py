"""Settings for all tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

# A slow machine is not a bug: no test fails because one of its examples took long. The same examples every time, so
# that a change fails for what it changed; PENSTOCK_EXPLORE=1 looks for new ones.
settings.register_profile("penstock", deadline=None, derandomize=not os.environ.get("PENSTOCK_EXPLORE"))
settings.load_profile("penstock")

# Spark's tests are short: compiling to the end what runs once costs more than it brings. make test leaves an archive of
# Java's classes, with which Spark starts twice as quickly.
_CLASSES: Final = Path(__file__).parents[1] / ".venv" / "spark.jsa"
_SHARED: Final = f" -XX:SharedArchiveFile={_CLASSES} -Xlog:disable" if _CLASSES.exists() else ""
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{_SHARED}")

# Owner processes of folders that no test needs any more make room.
os.environ["PENSTOCK_OWNER_IDLE_S"] = "2"

_ON_SPARK: Final = ("tests/spark/", "tests/cli/test_cli_commands", "tests/cli/test_cli_demo", "tests/cli/test_cli_jobs")


class _OneSpark(LoadScopeScheduling):  # type: ignore[misc]
    """Where tests run in two processes, one of them begins with those that share a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(_ON_SPARK) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:  # noqa: ANN401 - no type is public
    """Return what says which process runs which tests."""
    return _OneSpark(config, log)
