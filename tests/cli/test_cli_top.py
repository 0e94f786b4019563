"""``penstock top`` for scripts, and without a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator
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


class Terminal:
    """A terminal, on which a process runs."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process, self.ours = process, ours

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self.ours, key)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self.ours)
        self.ours = -1

    def until(self, text: bytes | None) -> bytes:
        """Return what is shown up to a text, or to the end."""
        shown, end = b"", time.monotonic() + 60
        while text is None or text not in shown:
            assert time.monotonic() < end, shown
            assert select.select([self.ours], [], [], 30)[0], shown
            try:
                shown += os.read(self.ours, 65536)
            except OSError:  # how Linux says that no process has the other side open any more
                assert text is None, shown
                break
        return shown


@contextmanager
def _on_terminal(*arguments: str, folder: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        env=environment | {"TERM": "xterm", "COLUMNS": "100", "LINES": "20"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        if terminal.ours >= 0:
            terminal.hang_up()


def test_sigterm_leaves_the_terminal_as_it_was(plant: Path, environment: dict[str, str]) -> None:
    """It had to be closed: nothing that was typed was seen, and the mouse wrote into it."""
    with _on_terminal("top", folder=plant, environment=environment) as terminal:
        terminal.until(b"plant/readings")
        terminal.process.send_signal(signal.SIGTERM)
        shown = terminal.until(None)
        for restored in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"):  # the first screen, the cursor, no mouse
            assert restored in shown
        assert terminal.process.wait(60) == 128 + signal.SIGTERM


def test_it_ends_with_its_terminal(plant: Path, environment: dict[str, str]) -> None:
    """It went on without one, and took a core."""
    with _on_terminal("top", folder=plant, environment=environment) as terminal:
        terminal.until(b"plant/readings")
        terminal.hang_up()
        assert terminal.process.wait(60) == 128 + signal.SIGHUP


def test_ctrl_z_stops_it_with_a_terminal_that_is_usable(plant: Path, environment: dict[str, str]) -> None:
    """A shell is a key away, and fg shows the streams again."""
    with _on_terminal("top", folder=plant, environment=environment) as terminal:
        terminal.until(b"plant/readings")
        terminal.press(b"\x1a")
        terminal.until(b"\x1b[?1049l")  # the first screen
        _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(b"plant/readings")
        terminal.press(b"q")
        terminal.until(None)
        assert terminal.process.wait(60) == 0
