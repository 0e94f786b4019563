"""What a session is told first, also one of Spark Connect, which has no context."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import BadArgument
from penstock.spark import register
from penstock.spark._source import PenstockSource

PUSH_FILTERS = "spark.sql.python.filterPushdown.enabled"


class Settings(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value


def session_of_connect(push_filters: str) -> Any:  # noqa: ANN401 - stands in for one of Spark
    known: list[type] = []
    return SimpleNamespace(
        known=known, dataSource=SimpleNamespace(register=known.append), conf=Settings({PUSH_FILTERS: push_filters})
    )


def test_a_session_of_spark_connect_gets_the_source_and_its_filters() -> None:
    """It is what declarative pipelines run in."""
    session = session_of_connect("false")
    register(session)
    assert session.known == [PenstockSource]
    assert session.conf == {PUSH_FILTERS: "true"}


def test_nothing_is_set_that_is_set_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The definitions of a declarative pipeline may set nothing; its configuration can."""
    session = session_of_connect("true")
    monkeypatch.setattr(Settings, "set", None)
    register(session)
    assert session.known == [PenstockSource]


def test_a_store_for_tasks_needs_a_context() -> None:
    """Else tasks would be told of it only when they fail."""
    with pytest.raises(BadArgument, match="open_event"):
        register(session_of_connect("true"), "./data")
