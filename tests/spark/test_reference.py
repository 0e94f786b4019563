"""What the reference and docs/spark.md show of a session in Python, with the Spark that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

from tests.sources import ROOT
from tests.test_docs import blocks_of
from tests.test_docstrings import EXAMPLES, RUN_ELSEWHERE, failures

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Store

PAGE: Final = ROOT / "docs" / "spark.md"


def test_the_example_of_the_package_runs(spark: SparkSession, store: Store, folder: Path) -> None:
    """It is the first thing that the reference shows of Spark."""
    assert store.streams()
    (example,) = [found for found in EXAMPLES if RUN_ELSEWHERE.get(found.file) == "tests/spark/test_reference.py"]
    here = example._replace(text=example.text.replace("./data", str(folder)))
    assert failures(here, spark=spark) == []


def test_an_error_looks_like_the_one_that_is_shown(spark: SparkSession, store: Store, folder: Path) -> None:
    """Readers who search the page for the text of their error have to find it."""
    assert store.streams()
    (shown,) = [block.body for block in blocks_of(PAGE.read_text()) if block.body.startswith(">>> ")]
    command, _, message = shown.removeprefix(">>> ").replace("./data", str(folder)).partition("\n…\n")
    with pytest.raises(PySparkException) as error:
        eval(command, {"spark": spark})
    assert message.strip() in str(error.value)
