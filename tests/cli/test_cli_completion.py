"""Completion in bash, zsh and fish: where a shell is not installed, what its script calls is called all the same."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from tests.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, Run

SHELLS: Final = ("bash", "zsh", "fish")
SET_UP: Final = {
    "bash": ("~/.bashrc", 'eval "$(penstock completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(penstock completion zsh)"'),
    "fish": ("~/.config/fish/completions/penstock.fish", "penstock completion fish >"),
}
"""The file that a shell reads, and what has to be in it or makes it."""


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


def test_what_the_script_of_zsh_calls_prints_the_completions(run: Run) -> None:
    """Zsh evaluates what is printed: one call that describes the completions of the last word."""
    script = run("penstock completion zsh").stdout
    assert '_TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _PENSTOCK_COMPLETE=complete_zsh penstock' in script
    for words, wanted in (
        ("penstock gr", "group"),
        ("penstock group cr", "create"),
        ("penstock stream rm --f", "--force"),
    ):
        answer = run("penstock", _TYPER_COMPLETE_ARGS=words, _PENSTOCK_COMPLETE="complete_zsh")
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout.startswith("_arguments '*: :((")
        assert f'"{wanted}"' in answer.stdout


def test_what_the_script_of_fish_calls_prints_the_completions(run: Run) -> None:
    """Fish asks first whether there are any, by the exit code, and then for one on each line, with its help."""
    calls = {"_PENSTOCK_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "penstock group cr"}
    assert run("penstock", _TYPER_COMPLETE_FISH_ACTION="is-args", **calls).returncode == 0
    answer = run("penstock", _TYPER_COMPLETE_FISH_ACTION="get-args", **calls)
    assert (answer.stdout.split("\t")[0], answer.stderr) == ("create", "")
    calls["_TYPER_COMPLETE_ARGS"] = "penstock group nonsense"
    assert run("penstock", _TYPER_COMPLETE_FISH_ACTION="is-args", **calls).returncode == 1


def test_zsh_completes_commands(run: Run) -> None:
    """As it does when Tab is pressed: after compinit, the command has a completion, and that names commands."""
    needs("zsh")
    result = run(
        'zsh -fc \'autoload -Uz compinit; compinit -u -d ./dump; eval "$(penstock completion zsh)"; '
        "_arguments() { print -r -- $@ }; words=(penstock group cr); CURRENT=3; "
        "print $_comps[penstock]; _penstock_completion'"
    )
    assert result.stderr == ""
    assert result.stdout.splitlines()[0] == "_penstock_completion"
    assert '"create"' in result.stdout


def test_fish_completes_commands(run: Run, tmp_path: Path) -> None:
    """As it does when Tab is pressed: from the file in the folder of completions, which fish reads by itself."""
    needs("fish")
    folder = tmp_path / "config" / "fish" / "completions"
    folder.mkdir(parents=True)
    script = f"penstock completion fish > {folder}/penstock.fish && fish -c 'complete -C \"penstock group cr\"'"
    result = run(script, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert result.stdout.split("\t")[0].strip() == "create"
