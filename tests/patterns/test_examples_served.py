"""The examples of docs/patterns.md with a store on a server: the same results as with a folder."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.server import Config, Server
from tests.patterns.killed_example import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = sorted(file.stem for file in EXAMPLES.glob("*.py"))


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401
    """Run an example in a folder; return what it printed last, and the lines of the files that it wrote."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    files = {file.name: sorted(file.read_text().splitlines()) for file in folder.glob("*.txt")}
    return capsys.readouterr().out.splitlines()[-2:], files


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_the_same_results_with_a_server(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that was tried out with a folder goes to production by another address."""
    expected = run(name, tmp_path / "alone", monkeypatch, capsys)
    connect, stores = penstock.connect, []

    def connect_to_server(address: str) -> penstock.Store:
        assert address == "./data"
        stores.append(connect(server.address))
        return stores[-1]

    with Server(Config(store=str(tmp_path / "served"), port=0, http_port=0, anonymous=True)) as server:
        monkeypatch.setattr(penstock, "connect", connect_to_server)
        assert run(name, tmp_path / "client", monkeypatch, capsys) == expected
    assert [type(store) for store in stores] == [RemoteStore]
