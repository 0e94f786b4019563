"""What holds for every command, and for the way all of them end."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.cli import command_names, main
from penstock.errors import StoreLocked

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def example_of(command: str) -> str:
    example: str = importlib.import_module(f"penstock.cli.{command}").EXAMPLE
    return example


@pytest.mark.parametrize("command", command_names())
def test_example_runs(run: Run, command: str) -> None:
    """People copy the example first; it has to work in an empty folder."""
    result = run(example_of(command))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("command", command_names())
def test_help_shows_the_example(run: Run, command: str) -> None:
    """One look at the help is enough to start."""
    result = run(f"penstock {command} --help")
    assert result.returncode == 0
    assert example_of(command).startswith(f"penstock {command}")
    assert f"Example: {example_of(command)}" in result.stdout


def test_help_lists_every_command(run: Run) -> None:
    """A command that is not listed does not exist for a newcomer."""
    result = run("penstock --help")
    assert result.returncode == 0
    listed = {line.split()[0] for line in result.stdout.partition("Commands:")[2].splitlines() if line.strip()}
    assert listed == set(command_names())


@pytest.mark.parametrize("arguments", ["nonsense", "--nonsense", "doctor --nonsense", "doctor --folder not/there", ""])
def test_wrong_usage_exits_with_2(run: Run, arguments: str) -> None:
    """Scripts tell a wrong call (2) from a failure (1)."""
    result = run(f"penstock {arguments}")
    assert result.returncode == 2
    assert "Usage: penstock" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_error_is_one_line_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what to do; a traceback would only hide it."""

    def fail() -> None:
        raise StoreLocked("data", owner="process 7")

    monkeypatch.setattr("penstock.cli.doctor.doctor", fail)
    monkeypatch.setattr(sys, "argv", ["penstock", "doctor"])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 1
    assert capsys.readouterr().err == "penstock: the folder data is in use by process 7: close that one first\n"
