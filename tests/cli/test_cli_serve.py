"""``penstock serve`` and ``penstock dev``; what a server does is tested in ``tests/server``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.server import Config, _run

if TYPE_CHECKING:
    from tests.cli.conftest import Call


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The settings of servers, which are not started."""
    configs: list[Config] = []
    monkeypatch.setattr("penstock.server.run", configs.append)
    return configs


def test_every_setting_is_a_flag(call: Call, started: list[Config]) -> None:
    """Under the name that it has everywhere; nothing is left out when a setting is added."""
    shown = " ".join(call("serve", "--help").out.split())
    for field in msgspec.structs.fields(Config):
        if field.name != "store":
            about = field.type.__metadata__[-1].description
            assert re.search(rf"--{field.name.replace('_', '-')}\b[^.]* {re.escape(about)}", shown), field.name
    assert started == []


def test_every_setting_is_documented() -> None:
    """The page is the one list that is written by hand."""
    page = Path(__file__).parents[2].joinpath("docs/server.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", page.partition("## Settings")[2].partition("## ")[0], re.MULTILINE)
    assert re.findall(r"\w+", " ".join(rows)) == list(Config.__struct_fields__)


def test_flags_are_settings(call: Call, started: list[Config]) -> None:
    """Those of the file and the environment fill the rest."""
    Path("penstock.toml").write_text('port = 1\nlog_format = "json"\n')
    result = call("serve", "./data", "--port", "7", "--no-tls", "--anonymous", "--idle-timeout-s", "2.5")
    assert result.code == 0, result.err
    expected = Config(store="./data", port=7, tls=False, anonymous=True, idle_timeout_s=2.5, log_format="json")
    assert started == [expected]


def test_store_may_come_from_the_environment(
    call: Call, started: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for every other command."""
    monkeypatch.setenv("PENSTOCK_STORE", "elsewhere")
    call("serve")
    assert started == [Config(store="elsewhere")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--port 70000", "penstock: command line: --port: invalid value 70000: use a whole number up to 65535\n"),
        ("--tls-cert a.crt", "penstock: command line: --tls-cert: --tls-key is missing: both are needed, or neither\n"),
        ("memory:", "penstock: command line: store: invalid value 'memory:': a server serves a folder\n"),
    ],
)
def test_wrong_setting_is_one_line_and_exits_with_2(call: Call, arguments: str, message: str) -> None:
    """And nothing was started."""
    result = call("serve", *arguments.split())
    assert (result.code, result.err) == (2, message)


def test_server_says_where_it_serves_and_that_it_ended(call: Call) -> None:
    """On the standard error, with everything else it logs."""
    result = call("serve", "data", "--port", "0", "--http-port", "0")
    assert result.code == 0
    assert result.out == ""
    assert re.search(r"info penstock\.server serving store=data flight=penstock://127\.0\.0\.1:\d+ http=", result.err)
    assert re.search(r" console=http://127\.0\.0\.1:\d+/console/ futoin=", result.err)
    assert re.search(r" futoin=ws://127\.0\.0\.1:\d+/futoin$", result.err, re.MULTILINE), (
        "the address of its event stream"
    )
    assert result.err.endswith("info penstock.server ended\n")


def test_dev_prints_addresses_and_leaves_nothing(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder is there while it serves, and gone with it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folders: list[list[Path]] = []
    real = _run.Server.__exit__

    def look(self: _run.Server, *args: object) -> None:
        folders.append([*tmp_path.glob("penstock-dev-*")])
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(_run.Server, "__exit__", look)
    result = call("dev", "--port", "0", "--http-port", "0")
    assert result.code == 0, result.err
    assert [line.split("\t")[0] for line in result.lines] == ["store", "health", "metrics", "console", "futoin"]
    assert re.fullmatch(r"store\tpenstock://127\.0\.0\.1:\d+", result.lines[0])
    assert [len(found) for found in folders] == [1]
    assert list(tmp_path.iterdir()) == []
