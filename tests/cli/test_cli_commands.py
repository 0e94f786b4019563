"""What holds for every command, and for the way all of them end."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cli import command_module, command_names, main
from penstock.errors import BadArgument, StoreLocked
from tests.cli.project import make_project
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, Run

HEAVY = ("numpy", "pyarrow", "rich", "sqlalchemy")


def example_of(command: str) -> str:
    example: str = command_module(command)[0].EXAMPLE
    return example


@pytest.mark.usefixtures("short_demo")
@pytest.mark.parametrize("command", command_names())
def test_example_runs(call: Call, plant: Path, command: str) -> None:
    """People copy the example first; it has to work."""
    if command == "demo" and not EXPLORES:
        pytest.skip("tests/cli/test_cli_demo.py runs the same: make explore")
    if command == "aggregate":
        with penstock.connect(plant / "penstock-data") as store:
            for stream in ("plant/alarms", "plant/all"):
                store.create_stream(stream)
    if command == "restore":
        call("backup", "penstock-data", "penstock-backup")
    if command.startswith("repo "):
        make_project(plant, is_imported=command != "repo import")
    if command in {"cluster add-group", "cluster replace-server"}:
        assert call(*shlex.split(example_of("cluster create"))[1:]).code == 0
    result = call(*shlex.split(example_of(command))[1:], stdin=b"secret\n")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("command", command_names())
def test_help_ends_with_the_example(call: Call, command: str) -> None:
    """One look at the help is enough to start; the example is on one line, so that it can be copied."""
    result = call(*command.split(), "--help")
    assert result.code == 0
    assert example_of(command).startswith(f"penstock {command}")
    assert result.lines[-1].strip() == f"Example: {example_of(command)}"


def test_help_lists_every_command_under_a_heading(call: Call) -> None:
    """A command that is not listed does not exist for a newcomer."""
    lines = call("--help").lines
    sections = lines[lines.index("Streams and their events:") :]
    listed = {line.split()[0] for line in sections if line.startswith("  ") and line[2] != " "}
    assert listed == {name.split()[0] for name in command_names()}
    assert "Penstock itself:" in sections


@pytest.mark.parametrize("group", ["event", "stream", "group", "repo", "repo bundle", "user"])
def test_help_of_a_group_lists_its_commands(call: Call, group: str) -> None:
    """Each has a line that says what it is for."""
    listed = call(*group.split(), "--help").out.partition("Commands:")[2]
    names = {name.removeprefix(f"{group} ").split()[0] for name in command_names() if name.startswith(f"{group} ")}
    assert {line.split()[0] for line in listed.splitlines() if line[:2] == "  " and line[2:3].strip()} == names


def test_help_imports_nothing_heavy() -> None:
    """Help that takes a second is help that is not asked for."""
    code = (
        "import sys; from penstock.cli import main; sys.argv = ['penstock', '--help']\n"
        "try: main()\n"
        f"finally: assert not set({HEAVY}) & set(sys.modules), sys.modules.keys() & set({HEAVY})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense", "no such command 'nonsense' (see penstock --help)"),
        ("--nonsense", "no such option: --nonsense (see penstock --help)"),
        ("doctor --nonsense", "no such option: --nonsense (see penstock doctor --help)"),
        ("stream x", "no such command 'x' (see penstock stream --help)"),
        ("stream create", "missing argument 'NAME' (see penstock stream create --help)"),
        ("stream delete a/b", "no such command 'delete'. Did you mean 'rm'? (see penstock stream --help)"),
        ("group show a", "no such command 'show'. Did you mean 'ls'? (see penstock group --help)"),
        ("write a/b --key", "option '--key' requires an argument (see penstock write --help)"),
        ("stream create --segments", "option '--segments' requires an argument (see penstock stream create --help)"),
        ("read a/b --limit 0", "invalid --limit: it should be greater than or equal to 1 (see penstock read --help)"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(call: Call, arguments: str, message: str) -> None:
    """Scripts tell a wrong call (2) from a failure (1); people find all errors in the same form."""
    assert call(*arguments.split()) == (2, b"", f"penstock: {message}\n")


@pytest.mark.parametrize("arguments", ["", "stream"])
def test_group_without_a_command_shows_its_help(call: Call, arguments: str) -> None:
    """It is the next thing that its user would ask for; it is wrong usage all the same."""
    result = call(*arguments.split())
    assert result.code == 2
    assert result.err == call(*arguments.split(), "--help").out


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            StoreLocked("data", owner="process 7"),
            1,
            "the folder data is in use by process 7: close the store there",
        ),
        (BadArgument("no name"), 2, "no name"),
        (FileNotFoundError(2, "No such file", "x.txt"), 1, "x.txt: No such file"),
        (OSError(28, "No space left"), 1, "No space left"),
    ],
)
def test_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, message: str
) -> None:
    """The message says what to do; a traceback would only hide it."""

    def fail() -> None:
        raise error

    monkeypatch.setattr("penstock.cli.doctor.doctor", fail)
    monkeypatch.setattr(sys, "argv", ["penstock", "doctor"])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == code
    assert capsys.readouterr().err == f"penstock: {message}\n"


def test_missing_package_of_an_extra_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most people install without extras, and find out here."""
    monkeypatch.delitem(sys.modules, "penstock.server._users")
    monkeypatch.setitem(sys.modules, "argon2", None)
    result = call("user", "ls")
    assert result.code == 1
    assert (
        result.err
        == "penstock: this needs argon2, which is missing: in a clone of Penstock, run pip install '.[server]'\n"
    )


def test_missing_module_of_our_own_is_our_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """No advice would help; the traceback may."""
    monkeypatch.delitem(sys.modules, "penstock.cli._checks", raising=False)
    monkeypatch.setitem(sys.modules, "penstock.cli._checks", None)
    monkeypatch.setattr(sys, "argv", ["penstock", "doctor"])
    with pytest.raises(ModuleNotFoundError):
        main()


@pytest.mark.parametrize("command", ["read plant/readings", "read plant/readings --json", "stream ls", "--help"])
def test_reader_that_has_gone_ends_a_command_without_a_word(run: Run, plant: Path, command: str) -> None:
    """``| head`` is how people look at the first events, and it takes no more than it shows."""
    assert plant.is_dir()
    result = run(f"penstock {command} | true; exit ${{PIPESTATUS[0]}}")
    assert result.returncode in (0, 1), "0 if all was written before the reader left"
    assert result.stderr == ""


def test_long_output_ends_with_its_reader(run: Run, plant: Path) -> None:
    """A command whose reader has gone stops, however much output is left."""
    with penstock.connect(plant / "penstock-data") as store, store.writer("plant/readings") as writer:
        writer.write_batch([b"%d" % number for number in range(200_000)])
    result = run("penstock read plant/readings | head -n 1; exit ${PIPESTATUS[0]}")
    assert (result.returncode, result.stdout, result.stderr) == (1, "20.1\n", "")


@pytest.mark.parametrize("closed", [">&-", "<&-", "<&- >&- 2>&-"])
def test_closed_standard_files_are_no_problem(run: Run, call: Call, plant: Path, closed: str) -> None:
    """The first file of a store would get the place of a closed one, and whatever prints would write to it."""
    assert plant.is_dir()
    result = run(f"penstock write plant/readings {closed}; exit $?")
    assert (result.returncode, result.stderr) == (0, "")
    assert call("read", "plant/readings", "--limit", "1").lines == ["20.1"]


def test_full_disk_behind_the_output_is_told(run: Run, plant: Path) -> None:
    """Half an answer must not look like a whole one."""
    assert plant.is_dir()
    result = run("penstock read plant/readings > /dev/full")
    assert (result.returncode, result.stderr) == (1, "penstock: No space left on device\n")


@pytest.mark.parametrize("command", ["", "stream", *command_names()])
def test_short_help_is_help(call: Call, command: str) -> None:
    """``-h`` is what hands type first."""
    assert call(*command.split(), "-h") == call(*command.split(), "--help")


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_help_is_not_cut_off(call: Call, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """The end of a sentence is often what matters; a narrow terminal has more lines, not fewer words."""
    monkeypatch.setenv("COLUMNS", columns)
    for command in command_names():
        group = command.rpartition(" ")[0]
        about = command_module(command)[1].__doc__ or ""
        first_sentence = re.split(r"(?<=\w)\. |\.?\n", about)[0].removesuffix(".")
        listed = call(*group.split(), "--help").out
        assert first_sentence in " ".join(listed.split()), command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(call: Call, shell: str) -> None:
    """A shell runs it at every start."""
    result = call("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert "_PENSTOCK_COMPLETE=complete_" in result.out


def test_bash_completes_commands_and_options(run: Run) -> None:
    """As it does when Tab is pressed."""
    script = (
        'eval "$(penstock completion bash)"; '
        "complete_it() { COMP_WORDS=($1); COMP_CWORD=$2; _penstock_completion penstock; echo ${COMPREPLY[*]}; }; "
        "complete_it 'penstock gr' 1; complete_it 'penstock group cr' 2; complete_it 'penstock stream update --no-r' 3"
    )
    result = run(script)
    assert (result.stdout.split(), result.stderr) == (["group", "create", "--no-retention"], "")
