"""Which store a command works on, and what it says where there is none."""

from __future__ import annotations

from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock

if TYPE_CHECKING:
    from tests.cli.conftest import Call

ALL_BUT_CREATE = [
    "stream ls",
    "stream show a/b",
    "stream scale a/b --split 0",
    "stream truncate a/b --at tail",
    "stream seal a/b",
    "stream rm a/b --force",
    "write a/b",
    "tail a/b",
    "tail a/b -f",
    "read a/b",
    "cat a/b:0@64",
    "group ls",
    "group lag",
    "group reset g --to head",
]


@pytest.mark.parametrize("command", ALL_BUT_CREATE)
def test_store_that_is_not_there_is_not_made(call: Call, tmp_path: Path, command: str) -> None:
    """A user who mistypes a path gets an error, and finds no empty store there later."""
    result = call(*command.split(), "--store", "nowhere")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("penstock: no store in nowhere:")
    assert len(result.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_create_makes_the_store(call: Call, tmp_path: Path) -> None:
    """The first stream is all it takes to start."""
    assert call("stream", "create", "a/b").code == 0
    assert tmp_path.joinpath("penstock-data").is_dir()
    assert call("stream", "ls", "--store", "penstock-data").lines == ["a/b\tactive\t1\t0\t0"]


def test_environment_names_the_store_and_the_option_wins(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script says it once, and can still look elsewhere."""
    monkeypatch.setenv("PENSTOCK_STORE", "one")
    assert call("stream", "create", "a/b").code == 0
    assert call("stream", "create", "c/d", "--store", "two").code == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["one", "two"]
    assert call("stream", "ls").lines == ["a/b\tactive\t1\t0\t0"]


@pytest.mark.parametrize("address", ["memory:", "http://host", ""])
@pytest.mark.parametrize("command", ["stream create a/b", "stream ls"])
def test_what_is_no_folder_is_refused(call: Call, tmp_path: Path, address: str, command: str) -> None:
    """A store in memory would be gone with the command; a server cannot be reached yet."""
    result = call(*command.split(), "--store", address)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["stream create a/b", "stream ls"])
def test_file_in_place_of_the_folder_is_an_error(call: Call, tmp_path: Path, command: str) -> None:
    """It is left as it is."""
    tmp_path.joinpath("file").write_text("mine")
    result = call(*command.split(), "--store", "file")
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert tmp_path.joinpath("file").read_text() == "mine"


def test_a_store_that_another_has_for_itself_is_told_with_its_owner(call: Call, plant: Path) -> None:
    """The error names the process that has to be closed first."""
    with penstock.connect(plant / "penstock-data", exclusive=True):
        result = call("stream", "ls")
    assert result.code == 1
    assert "is in use by process" in result.err


def test_a_store_that_another_process_has_open_is_shared(call: Call, plant: Path) -> None:
    """A look at what a program writes, while it writes."""
    with penstock.connect(plant / "penstock-data") as store:
        assert "plant/readings\tactive\t1\t4\t96" in call("stream", "ls").lines
        assert call("write", "plant/readings", "readings.txt").code == 0
        assert sum(map(len, store.read("plant/readings"))) == 6


@pytest.mark.parametrize("command", ["stream ls", "stream create a/b", "read a/b", "user ls", "maintain"])
def test_a_file_in_place_of_the_folder_is_named_by_every_command(call: Call, tmp_path: Path, command: str) -> None:
    """Some said that there is no store, or no folder, of that name."""
    file = tmp_path / "file"
    file.touch()
    result = call(*command.split(), "--store", str(file))
    assert (result.code, f"cannot use the folder {file}: it is a file" in result.err) == (1, True)


def test_the_refusal_of_a_position_names_ages(call: Call, tmp_path: Path) -> None:
    """An age is what is typed most, and what nothing but the help showed."""
    store = str(tmp_path / "data")
    assert call("stream", "create", "a/b", "--store", store).code == 0
    result = call("read", "a/b", "--from", "yesterday", "--store", store)
    assert (result.code, "or an age like 10m" in result.err) == (2, True)


def test_an_error_says_what_to_do_next(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these left the user to guess: a name without its scope, a text for a file, a folder of somebody else."""
    store = str(tmp_path / "data")
    assert call("stream", "create", "a/b", "--store", store).code == 0
    assert call("tail", "b", "--store", store).err == "penstock: no stream 'b': a name has a scope, as in plant/b\n"
    text = call("write", "a/b", "hello", "--store", store)
    assert (text.code, "no file hello: arguments are files" in text.err, "echo TEXT |" in text.err) == (1, True, True)

    def exists(path: Path) -> bool:
        raise PermissionError(EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)  # root, who runs tests in containers, may read everything
    refused = call("stream", "ls", "--store", store)
    assert refused.code == 1
    assert "Permission denied: use a file or folder that you may read and write" in refused.err
