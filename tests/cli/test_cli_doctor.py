"""``penstock doctor``."""

from __future__ import annotations

import importlib.metadata
import json
import re
import resource
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli._checks import check_machine
from penstock.ports import SystemClock
from penstock.server._tls import own_certificate
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from tests.cli.conftest import Call, CallOnTerminal

PACKAGES = ("google-crc32c", "msgspec", "numpy", "packaging", "pyarrow", "rich", "sqlalchemy", "typer")
SERVER = ("server settings", "server ports", "server certificate")
STORES = ("spark", "delta", "iceberg", "server", "objects", "postgresql", "events", "repo")
EXTRAS = tuple(f"extra {name}" for name in (*STORES, "top", "tracing", "interop", "examples", "docs"))
DEVELOPERS = {"bench", "dev", "fuzz", "oracle", "pipelines"}
ALIASES = {"console"}  # the packages of another extra, which is listed
NAMES = ["Python", *PACKAGES, *EXTRAS, "Java", "free space", "durable write", "open files", *SERVER]


def checks_in(output: str) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(output)}


def test_text_has_a_line_for_every_check(call_on_terminal: CallOnTerminal, tmp_path: Path) -> None:
    """The table is read by people: name, status, what was found, what to do."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", call_on_terminal("doctor")).splitlines()
    assert lines[0].split() == ["check", "status", "found", "what", "to", "do"]
    assert len(lines) == len(NAMES) + 1
    for name, line in zip(NAMES, lines[1:], strict=True):
        assert line.startswith(f"{name} ")
    assert list(tmp_path.iterdir()) == [], "the doctor leaves nothing behind"


def test_json_has_the_same_checks(call: Call) -> None:
    """A script that prepares machines reads this."""
    result = call("doctor", "--json")
    assert result.code == 0
    checks = checks_in(result.out)
    assert list(checks) == NAMES
    for check in checks.values():
        assert set(check) == {"name", "status", "found", "fix"}
        assert check["found"]
        assert bool(check["fix"]) == (check["status"] != "ok"), "a fix is given where, and only where, one is needed"


def test_every_extra_is_known_with_what_it_is_for(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lacks something should learn from one command what it is called, and whether it is worth having."""
    declared = set(importlib.metadata.metadata("penstock-stream").get_all("Provides-Extra") or [])
    assert {f"extra {name}" for name in declared - DEVELOPERS - ALIASES} == set(EXTRAS)
    version = importlib.metadata.version

    def lacking(name: str) -> str:
        if name in {"textual", "pyiceberg"}:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", lacking)
    checks = checks_in(call("doctor", "--json").out)
    assert checks["extra top"]["found"] == "textual missing"
    advice = "to watch streams in a terminal with penstock top: in a clone of Penstock, run pip install '.[top]'"
    assert (checks["extra top"]["status"], checks["extra top"]["fix"]) == ("warn", advice)
    assert checks["extra iceberg"]["status"] == "warn"
    assert checks["extra tracing"]["status"] == "ok"
    assert checks["extra server"]["found"].endswith("(to run a server with its web console)")


def test_folder_that_cannot_be_written_fails(call: Call) -> None:
    """/proc takes no files, not even from root: the store could not start there either."""
    result = call("doctor", "--store", "/proc", "--json")
    assert result.code == 1
    assert checks_in(result.out)["durable write"]["status"] == "fail"


@pytest.mark.parametrize(
    ("store", "folder"), [("{0}/data", "{0}/data"), ("{0}/data/new/store", "{0}/data"), ("penstock://host:1", "{1}")]
)
def test_the_disk_of_the_store_is_checked(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: str, folder: str
) -> None:
    """The store may lie on another disk than the current folder, and PENSTOCK_STORE names it for every command."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("PENSTOCK_STORE", store.format(tmp_path))
    found = checks_in(call("doctor", "--json").out)["free space"]["found"]
    assert found.endswith(f" GiB in {folder.format(tmp_path, Path.cwd())}")


@pytest.mark.parametrize(("free", "status"), [(2 << 30, "ok"), (1 << 29, "warn"), (1 << 20, "fail")])
def test_free_space_is_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: str) -> None:
    """A warning comes while there is still time; a failure where not even an empty store fits."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1, free))
    check = next(check for check in check_machine(tmp_path) if check.name == "free space")
    assert check.status == status


def test_low_limit_of_open_files_is_a_warning(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with many plogs open would run into it, at the worst time."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    result = call("doctor", "--json")
    assert result.code == 0
    assert checks_in(result.out)["open files"]["status"] == "warn"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("echo 'openjdk version \"21.0.2\" 2024-01-16' >&2", ("ok", "21.0.2")),
        ("echo 'java version \"1.8.0_402\"' >&2", ("warn", "1.8.0_402")),
        ("echo something else >&2", ("warn", "missing")),
        ("exit 3", ("warn", "missing")),
    ],
)
def test_java_of_java_home_is_asked(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, expected: tuple[str, str]
) -> None:
    """Spark runs the one of JAVA_HOME, and an old one there is the usual reason why it does not start."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{answer}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = checks_in(call("doctor", "--json").out)["Java"]
    assert (check["status"], check["found"]) == expected


def test_missing_java_does_not_fail(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Penstock without Spark needs no Java."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = call("doctor", "--json")
    assert result.code == 0
    assert checks_in(result.out)["Java"]["status"] == "warn"


def test_wrong_settings_of_a_server_are_a_warning(call: Call, tmp_path: Path) -> None:
    """A user without a server needs none; one who has one reads what is wrong, in words."""
    tmp_path.joinpath("penstock.toml").write_text("prot = 7367")
    result = call("doctor", "--json")
    assert result.code == 0
    checks = checks_in(result.out)
    assert checks["server settings"]["status"] == "warn"
    assert "penstock.toml: prot: unknown setting" in checks["server settings"]["found"]
    assert "server ports" not in checks


def test_port_in_use_is_a_warning(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the server itself."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("PENSTOCK_PORT", str(port))
        check = checks_in(call("doctor", "--json").out)["server ports"]
    assert check["status"] == "warn"
    assert check["found"] == f"127.0.0.1:{port}: Address already in use"


@pytest.mark.parametrize(("days", "expected"), [(0, "ok valid"), (3640, "warn valid"), (3700, "warn it has expired")])
def test_certificate_is_looked_at(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int, expected: str
) -> None:
    """A warning comes while there is still time."""
    status, _, found = expected.partition(" ")
    monkeypatch.setenv("PENSTOCK_TLS", "true")
    check = checks_in(call("doctor", "--json").out)["server certificate"]
    assert (check["status"], check["found"]) == ("ok", "created at the first start")
    made_at = ManualClock(SystemClock().now() - days * 86_400)
    own_certificate(tmp_path / "penstock-data", ["localhost"], clock=made_at)
    check = checks_in(call("doctor", "--json").out)["server certificate"]
    assert check["status"] == status
    assert found in check["found"]


def test_certificate_is_not_looked_at_without_the_packages(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The doctor is the one command that has to work where nothing else does."""
    monkeypatch.setenv("PENSTOCK_TLS", "true")
    tmp_path.joinpath("penstock-data").mkdir()
    tmp_path.joinpath("penstock-data", "server.crt").touch()
    monkeypatch.setitem(sys.modules, "penstock.server._tls", None)
    check = checks_in(call("doctor", "--json").out)["server certificate"]
    assert check["status"] == "warn"
    assert "pip install '.[server]'" in check["fix"]


def test_report_is_plain_lines_elsewhere(call: Call) -> None:
    """``penstock doctor | grep -v ok`` is what a script asks; no line is folded, and each has the same fields."""
    lines = call("doctor").lines
    assert [line.split("\t")[0] for line in lines] == NAMES
    assert all(len(line.split("\t")) == 4 for line in lines)
    assert lines[0].startswith("Python\tok\t3.")


def test_an_address_that_is_no_folder_is_a_warning_and_a_file_fails(call: Call, tmp_path: Path) -> None:
    """The disk of another folder was checked, without a word."""
    far = call("doctor", "--json", "--store", "penstock://plant:7400")
    assert (far.code, checks_in(far.out)["store"]["status"]) == (0, "warn")
    file = tmp_path / "file"
    file.touch()
    wrong = call("doctor", "--json", "--store", str(file))
    assert (wrong.code, checks_in(wrong.out)["store"]["found"]) == (1, f"{file}: it is a file")
