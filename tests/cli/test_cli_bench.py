"""``penstock bench``: what is wrong with a call is said before anything starts, and figures end up in the files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import penstock.bench
from tests.bench.harness import TINY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the quick mode be quicker."""
    monkeypatch.setattr(penstock.bench, "QUICK", TINY)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a measurement begins."""

    def run_bench(*_: object, **__: object) -> None:
        raise AssertionError("nothing may run")

    monkeypatch.setattr(penstock.bench, "run_bench", run_bench)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--peers", "oracle"),
            "invalid --peers 'oracle': use nats, redis, rabbitmq, postgresql, kafka, or none alone",
        ),
        (("--only", "sing"), "invalid --only 'sing': use restart, "),
        (("--only", "huge"), "invalid --only 'huge': it is a work of --full"),
        (("--penstock", "sunk"), "invalid --penstock 'sunk': use embedded, "),
        (("--html", "."), ". is a folder: name a file"),
        (("--json", "no/such/file"), "for file: create it, or name another file"),
        (("--dir", "nowhere"), "invalid --dir nowhere: there is no such folder"),
        (("--seconds", "0"), "invalid --seconds: "),
    ],
)
def test_a_wrong_call_is_refused_at_once(call: Call, arguments: tuple[str, ...], message: str) -> None:
    """What is noticed after three minutes costs them again."""
    result = call("bench", *arguments)
    assert (result.code, result.raw) == (2, b"")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("nothing_runs")
def test_a_file_that_cannot_be_written_is_refused_at_once(call: Call) -> None:
    """/proc takes no files, not even from root."""
    result = call("bench", "--json", "/proc/figures.json")
    assert result.code == 2
    assert "/proc/figures.json cannot be written" in result.err


@pytest.mark.usefixtures("tiny")
def test_a_run_prints_tables_and_writes_both_files(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is for now, the JSON for scripts, the page for others; a peer that is missing is one sentence."""
    monkeypatch.setenv("PATH", "/bin-of-nobody")
    monkeypatch.setattr("penstock.bench._process._GUARD", "exit 1")  # no server may start
    arguments = ("--only", "durable,restart", "--penstock", "embedded", "--peers", "redis", "--json", "figures.json")
    result = call("bench", *arguments)
    assert result.code == 0, result.err
    written = json.loads((here / "figures.json").read_bytes())
    assert {(each["work"], each["system"]) for each in written["results"]} == {
        ("durable", "penstock-embedded"),
        ("restart", "penstock-embedded"),
    }
    assert [each["key"] for each in written["skipped"]] == ["redis-synced", "redis-default"]
    assert "penstock: Redis streams, synced is skipped: the program redis-server is missing: " in result.err
    assert any(line.startswith("restart, to the first event read\t") for line in result.lines)
    assert result.lines[-1] == "chart\tbench.html"
    assert 'data-system="penstock-embedded"' in (here / "bench.html").read_text()
