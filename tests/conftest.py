"""Settings for all tests."""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import settings

# A slow machine is not a bug: no test fails because one of its examples took long. The same examples every time, so
# that a change fails for what it changed; PENSTOCK_EXPLORE=1 looks for new ones.
settings.register_profile("penstock", deadline=None, derandomize=not os.environ.get("PENSTOCK_EXPLORE"))
settings.load_profile("penstock")

# Spark's tests are short: compiling to the end what runs once costs more than it brings.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_ON_SPARK: Final = ("tests/spark/", "tests/cli/test_cli_commands", "tests/cli/test_cli_demo", "tests/cli/test_cli_jobs")


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in two processes, let one of them begin with those that share a Spark, in this order."""
    on_spark = [item for item in items if item.nodeid.startswith(_ON_SPARK)]
    for item in on_spark:
        item.add_marker(pytest.mark.xdist_group("spark"))
    items[:] = [*on_spark, *(item for item in items if not item.nodeid.startswith(_ON_SPARK))]
