"""``penstock top`` for scripts, and without a terminal."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Call, CallOnTerminal, Run


def test_once_prints_a_table_of_a_folder_that_is_shared(run: Run, tmp_path: Path) -> None:
    """A script has no terminal, and asks the owner of the folder, whichever process that is."""
    with penstock.connect(tmp_path / "penstock-data") as store:
        for name in ("plant/readings", "shop/orders"):
            store.create_stream(name)
        with store.writer("plant/readings") as writer:
            writer.write_batch([b"reading"] * 3).result()
        store.create_reader_group("dashboard", ["plant/readings"])
        result = run("penstock top --once --sort lag")
        assert result.returncode == 0, result.stderr
        rows = [line.split("\t") for line in result.stdout.splitlines()]
        assert [row[0] for row in rows] == ["plant/readings", "shop/orders"]
        assert rows[0][1:3] == ["1", "3"]
        assert rows[0][-1] == "group dashboard"
        assert rows[1][4:8] == ["0", "0 B", "-", "-"], "rates are known, because it asked twice"


def test_json_has_all_figures(call: Call, plant: Path) -> None:
    """Programs compute with figures, not with what people read."""
    assert plant.is_dir()
    result = call("top", "--json", "--filter", "plant/", "--limit", "1")
    overview = json.loads(result.out)
    assert (overview["found"], len(overview["streams"])) == (1, 1)
    assert overview["streams"][0]["lag"][0] == 3
    assert overview["streams"][0]["rate"] == [0.0, 0.0]


def test_once_has_headings_on_a_terminal(call_on_terminal: CallOnTerminal, plant: Path) -> None:
    """People read it, too."""
    assert plant.is_dir()
    shown = call_on_terminal("top", "--once")
    titles = ["stream", "segments", "events/s", "held back by"]
    assert re.findall("|".join(titles), shown)[:4] == titles


def test_once_does_without_the_extra(call: Call, plant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has no terminal, and should need no more packages."""
    assert plant.is_dir()
    monkeypatch.setitem(sys.modules, "textual", None)
    assert call("top", "--once").code == 0


def test_bad_usage_is_refused_in_words(call: Call, here: Path) -> None:
    """A typing mistake says what may be typed."""
    assert here.is_dir()
    assert call("top", "--once", "--sort", "size").code == 2
    missing = call("top", "--once")
    assert missing.code == 1
    assert "no store in ./penstock-data: name one with --store" in missing.err
