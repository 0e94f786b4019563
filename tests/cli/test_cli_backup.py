"""``penstock backup``, ``penstock restore`` and ``penstock check``."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from penstock.server import Config, Server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal


@pytest.fixture
def readings(call: Call) -> None:
    call("stream", "create", "plant/readings")
    call("write", "plant/readings", stdin=b"1\n2\n3\n")


@pytest.mark.usefixtures("readings")
def test_backup_list_verify_and_restore(call: Call) -> None:
    """The way that a user goes on the worst day, and once before it, to try."""
    first = json.loads(call("backup", "penstock-data", "saved", "--json").out)
    assert first["copied_bytes"] == first["size_bytes"] > 0
    call("write", "plant/readings", stdin=b"4\n")
    second = call("backup", "penstock-data", "saved")
    assert second.code == 0
    point = second.out.partition(":")[0]
    assert point > first["point"]
    listed = call("backup", "ls", "saved")
    assert [line.split("\t")[0] for line in listed.lines] == [first["point"], point]
    assert [entry["name"] for entry in json.loads(call("backup", "ls", "saved", "--json").out)] == [
        first["point"],
        point,
    ]
    assert call("backup", "--verify", "saved").out.startswith("saved: 2 points and ")
    assert call("restore", "saved", "new").out.startswith(f"new: restored from {point}")
    assert call("read", "plant/readings", "--store", "new").out == "1\n2\n3\n4\n"
    assert json.loads(call("restore", "saved", "old", "--at", first["point"], "--json").out)["point"] == first["point"]
    assert call("read", "plant/readings", "--store", "old").out == "1\n2\n3\n"
    removed = call("backup", "penstock-data", "saved", "--keep", "1")
    assert removed.lines[1:] == [f"{first['point']}: removed", f"{point}: removed"]


@pytest.mark.usefixtures("readings")
def test_check_says_that_all_is_well(call: Call) -> None:
    """A store, its backup, and a folder that is neither."""
    call("backup", "penstock-data", "saved")
    for place in ("penstock-data", "saved"):
        result = call("check", place)
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith(f"{place}: no damage (1 stream, 3 events, ")
    assert json.loads(call("check", "saved", "--json").out)["good"] is True
    missing = call("check", "nothing")
    assert (missing.code, missing.err) == (
        2,
        "penstock: no store and no backup in nothing: name the folder of one\n",
    )
    assert call("check", "penstock-data", "--at", "now").code == 2


@pytest.mark.usefixtures("readings")
def test_check_names_what_is_damaged(call: Call, here: Path) -> None:
    """The exit code tells a script, the line tells a person."""
    call("backup", "penstock-data", "saved")
    [pack] = (here / "saved" / "packs").iterdir()
    data = bytearray(pack.read_bytes())
    data[-3] ^= 1
    pack.write_bytes(data)
    result = call("check", "saved")
    assert result.code == 1
    assert pack.name in result.out
    report = json.loads(call("check", "saved", "--json").out)
    assert report["good"] is False
    assert report["findings"][0]["advice"]
    verified = call("backup", "--verify", "saved")
    assert verified.code == 1
    assert "penstock: damaged points of saved: 1 of 1; no point of this backup can be restored" in verified.err
    assert pack.name in verified.err
    assert call("restore", "saved", "new").code == 1
    assert not (here / "new").exists()


@pytest.mark.usefixtures("readings")
def test_check_and_verify_say_which_points_can_be_restored(call: Call, here: Path) -> None:
    """That is the question on the worst day; what is wrong with the others comes second."""
    points, packs = [], []
    for number in range(3):
        call("write", "plant/readings", stdin=b"%d\n" % number)
        points.append(json.loads(call("backup", "penstock-data", "saved", "--json").out)["point"])
        packs.append(next(path for path in (here / "saved" / "packs").iterdir() if path not in packs))
    packs[2].write_bytes(packs[2].read_bytes()[:-1])
    for command in ("check", "saved"), ("backup", "--verify", "saved"):
        result = call(*command)
        assert result.code == 1
        assert f"restore another point: {points[1]} can be restored completely, and 1 before it (--at)" in (
            result.out + result.err
        )
    assert f"penstock: point {points[2]} cannot be restored completely\n" in call("backup", "--verify", "saved").err
    assert call("check", "saved", "--at", points[1]).code == 0
    verified = json.loads(call("backup", "--verify", "saved", "--json").out)
    assert (verified["good"], verified["damaged"]) == (points[:2], points[2:])
    packs[0].unlink()
    assert "no point of this backup can be restored completely: delete the damaged" in call("check", "saved").out
    (here / "saved" / "points" / points[2]).write_bytes(b"x")
    damaged = call("check", "saved")
    assert (damaged.code, damaged.err) == (1, "")
    assert damaged.out.startswith(f"the point {points[2]} (")
    call("backup", "penstock-data", "saved")
    assert call("check", "saved").code == 0, "the advice is right"


@pytest.mark.usefixtures("readings")
def test_backup_of_a_server(call: Call, tmp_path: Path) -> None:
    """The target is beside the command, and not beside the server."""
    with Server(Config(store=str(tmp_path / "served"), port=0, http_port=0, anonymous=True)) as server:
        assert call("copy", "penstock-data", server.address).code == 0
        assert call("backup", server.address, "saved").code == 0
        assert call("check", server.address).code == 0
    call("restore", "saved", "new")
    assert call("read", "plant/readings", "--store", "new").out == "1\n2\n3\n"


@pytest.mark.usefixtures("readings")
def test_backup_shows_its_progress_on_a_terminal(call_on_terminal: CallOnTerminal) -> None:
    """A backup of a large store takes long."""
    assert "copying the store" in call_on_terminal("backup", "penstock-data", "saved")


@pytest.mark.usefixtures("readings")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("backup penstock-data", 2, "name a STORE and a TARGET"),
        ("backup --verify a b", 2, "--verify takes the TARGET alone: leave out STORE and --keep"),
        ("backup nothing saved", 1, "no store in nothing: name one with STORE"),
        ("backup penstock-data http://x", 2, "invalid target http://x: use a folder, s3://bucket/prefix"),
        ("backup penstock-data saved --user u", 2, "--user applies only to a server"),
    ],
)
def test_wrong_calls_are_explained(call: Call, arguments: str, code: int, message: str) -> None:
    """Nothing is made in a wrong place."""
    result = call(*arguments.split())
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"penstock: {message}")


@pytest.mark.usefixtures("readings")
def test_restore_refuses_a_folder_that_is_in_use(call: Call, here: Path) -> None:
    """The store that is to be saved may be in the way."""
    call("backup", "penstock-data", "saved")
    result = call("restore", "saved", "penstock-data")
    assert result.code == 1
    assert result.err.startswith(f"penstock: cannot restore into {here / 'penstock-data'}, which is not empty: ")


@pytest.mark.usefixtures("readings")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("backup", "penstock-data", "saved"), "earlier points are as they were; run the backup again"),
        (("restore", "saved", "new"), "nothing was restored; run the restore again"),
    ],
)
def test_ctrl_c_says_what_is_left(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """Whoever has interrupted it asks at once whether something is half done."""
    assert call("backup", "penstock-data", "saved").code == 0
    points = call("backup", "ls", "saved").out
    pressed: list[bool] = []

    def interrupted(_: int) -> None:
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    call("write", "plant/readings", stdin=b"4\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        result = call(*arguments)
    assert (result.code, result.out) == (130, "")
    assert result.err.startswith(f"penstock: interrupted: {said}")
    assert call("backup", "ls", "saved").out == points
    assert not (here / "new").exists()
