"""Completion in bash, zsh and fish: where a shell is not installed, what its script calls is called all the same."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, Final

import pytest

from tests.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from tests.cli.conftest import Call, Run

SHELLS: Final = ("bash", "zsh", "fish")
SET_UP: Final = {
    "bash": ("~/.bashrc", 'eval "$(penstock completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(penstock completion zsh)"'),
    "fish": ("~/.config/fish/completions/penstock.fish", "penstock completion fish >"),
}
"""The file that a shell reads, and what has to be in it or makes it."""


TERMINALS: Final = {
    "bash": ("--noprofile", "--rcfile"),
    "zsh": ("-d", "-i"),
}
"""The options with which a shell reads no file but ours."""
RC_FILES: Final = {
    "bash": "bind 'set enable-bracketed-paste off'",
    "zsh": "unset zle_bracketed_paste; autoload -Uz compinit; compinit -u -d ./dump",
}
COMPLETED: Final = {
    "penstock gr": "penstock group ",
    "penstock group cr": "penstock group create ",
    "penstock stream rm --f": "penstock stream rm --force ",
    "penstock stream create 'a b' --seg": "penstock stream create 'a b' --segments ",
    "penstock serve da": r"penstock serve data\\ folder/",
    "penstock tail a --store=da": r"penstock tail a --store=data\\ folder/",
}
"""What is typed, and what it becomes, as a pattern."""
CLEAR: Final = "\x15"  # Ctrl-U
PROMPT: Final = "ready> "
ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?>=]*[A-Za-z]|[=>])|[\r\x07]")
LONG_S: Final = 60


class Terminal:
    """A shell that was started in a terminal, with completion as the help says."""

    def __init__(self, shell: str, environment: dict[str, str], folder: Path) -> None:
        name = folder / (".zshrc" if shell == "zsh" else ".bashrc")
        name.write_text(f"PS1='{PROMPT}'\n{RC_FILES[shell]}\n{SET_UP[shell][1]}\n")
        self._command = [shell, *TERMINALS[shell], *([str(name), "-i"] if shell == "bash" else [])]
        self._environment = environment | {"ZDOTDIR": str(folder), "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        self._folder = folder
        self._shown = ""

    def __enter__(self) -> Self:
        self._file, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            env=self._environment,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        self.wait_for(PROMPT)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._file)

    def type(self, keys: str) -> None:
        """Press keys; what was shown before does not count any more."""
        self._shown = ""
        os.write(self._file, keys.encode())

    def wait_for(self, pattern: str) -> None:
        """Wait until the terminal shows something."""
        while not re.search(pattern, self._shown):
            assert select.select([self._file], [], [], LONG_S)[0], f"{pattern} is not in {self._shown!r}"
            self._shown = ESCAPES.sub("", self._shown + os.read(self._file, 65_536).decode(errors="replace"))


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_help_and_the_page_name_the_file_that_the_shell_reads(call: Call, shell: str) -> None:
    """A line for zsh in the file of bash is read by neither."""
    file, command = SET_UP[shell]
    page = (ROOT / "docs" / "cli.md").read_text()
    for text in (call("completion", "--help").out, page):
        [line] = [line for line in text.splitlines() if command in line]
        assert file in line


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_finds_no_mistake_in_its_script(run: Run, shell: str) -> None:
    """A script with a mistake prints an error whenever a terminal is opened."""
    needs(shell)
    result = run(f"penstock completion {shell} > script && {shell} -n script")
    assert (result.returncode, result.stderr) == (0, "")


def test_what_the_script_of_fish_calls_prints_the_completions(run: Run) -> None:
    """Fish asks first whether there are any, by the exit code, and then for one on each line, with its help."""
    calls = {"_PENSTOCK_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "penstock group cr"}
    assert run("penstock", _TYPER_COMPLETE_FISH_ACTION="is-args", **calls).returncode == 0
    answer = run("penstock", _TYPER_COMPLETE_FISH_ACTION="get-args", **calls)
    assert (answer.stdout.split("\t")[0], answer.stderr) == ("create", "")
    calls["_TYPER_COMPLETE_ARGS"] = "penstock group nonsense"
    assert run("penstock", _TYPER_COMPLETE_FISH_ACTION="is-args", **calls).returncode == 1


@pytest.mark.parametrize("shell", TERMINALS)
def test_the_tab_key_completes(shell: str, environment: dict[str, str], tmp_path: Path) -> None:
    """What a user types, in a terminal, with the set-up of the help: only the shell itself knows what becomes of it."""
    needs(shell)
    (tmp_path / "data folder").mkdir()
    with Terminal(shell, environment, tmp_path) as terminal:
        for typed, completed in COMPLETED.items():
            terminal.type(f"{typed}\t")
            terminal.wait_for(completed)
            terminal.type(CLEAR)


def test_zsh_lists_the_help_as_it_is_written(environment: dict[str, str], tmp_path: Path) -> None:
    """The script of typer has zsh evaluate the help: it lost every apostrophe."""
    needs("zsh")
    with Terminal("zsh", environment, tmp_path) as terminal:
        terminal.type("penstock stream create --\t")
        terminal.wait_for("--plogs +-- The bucket with the server's plogs, s3://bucket/prefix: read events there.")


def test_fish_completes(run: Run, tmp_path: Path) -> None:
    """As it does when Tab is pressed: from the file in the folder of completions, which fish reads by itself."""
    needs("fish")
    (tmp_path / "data folder").mkdir()
    folder = tmp_path / "config" / "fish" / "completions"
    folder.mkdir(parents=True)
    lines = [f"complete -C {shlex.quote(typed)}" for typed in COMPLETED]
    (tmp_path / "ask.fish").write_text("\n".join(lines))
    script = f"penstock completion fish > {folder}/penstock.fish && fish ask.fish"
    result = run(script, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert result.stderr == ""
    words = [line.split("\t")[0] for line in result.stdout.splitlines()]
    assert words == ["group", "create", "--force", "--segments", "data folder/", "--store=data folder/"]
