"""``penstock copy``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.server import Config, Server

if TYPE_CHECKING:
    from tests.cli.conftest import Call, CallOnTerminal


@pytest.fixture
def readings(call: Call) -> None:
    call("stream", "create", "plant/readings")
    call("write", "plant/readings", stdin=b"1\n2\n3\n")
    call("group", "create", "g", "plant/readings")


@pytest.mark.usefixtures("readings")
def test_copy_tells_what_it_has_copied_and_continues(call: Call) -> None:
    """The second run says that there was nothing to do, and which positions it has left alone."""
    tail = json.loads(call("stream", "show", "plant/readings", "--json").out)["tail"]
    first = call("copy", "penstock-data", "backup")
    assert (first.code, first.lines) == (
        0,
        [f"plant/readings: 3 events, 0 watermarks copied, complete up to {tail}", "group g: goes on where it was"],
    )
    assert call("read", "plant/readings", "--store", "backup").out == "1\n2\n3\n"
    again = call("copy", "penstock-data", "backup", "plant/readings")
    assert again.out == f"plant/readings: 0 events, 0 watermarks copied, complete up to {tail}\n"
    assert again.err == "penstock: backup has a group g already, which stays where it is\n"
    [stream] = json.loads(call("copy", "penstock-data", "backup", "--json").out)["streams"]
    assert (stream["name"], stream["events"], stream["end"]) == ("plant/readings", 0, tail)
    assert call("copy", "penstock-data", "backup", "--cut", tail).out == f"{stream['target_end']}\n"


@pytest.mark.usefixtures("readings")
def test_copy_to_a_server(call: Call, tmp_path: Path) -> None:
    """The other store may be anywhere."""
    with Server(Config(store=str(tmp_path / "served"), port=0, http_port=0, anonymous=True)) as server:
        assert call("copy", "penstock-data", server.address).code == 0
        with penstock.connect(server.address) as store:
            assert store.stream("plant/readings").events == 3


@pytest.mark.usefixtures("readings")
def test_copy_shows_its_progress_on_a_terminal(call_on_terminal: CallOnTerminal) -> None:
    """A copy of a large store takes long."""
    assert "copying plant/readings" in call_on_terminal("copy", "penstock-data", "backup")


@pytest.mark.usefixtures("readings")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("penstock-data penstock-data", 2, "FROM and TO are the same store"),
        ("penstock-data ./x/../penstock-data/", 2, "FROM and TO are the same store"),
        ("penstock://h:1,h:2 penstock://h:2", 2, "FROM and TO are the same store"),
        ("nowhere backup", 1, "no store in nowhere: name one with FROM"),
        ("penstock-data backup --cut plant/readings:0@0", 1, "no store in backup: name one with TO"),
        ("penstock-data backup no/stream", 1, "no stream 'no/stream'"),
        ("penstock-data backup --cut x", 2, "invalid stream cut 'x'"),
        ("penstock-data backup a/b --cut a/b:0@0", 2, "leave out STREAM"),
        ("penstock-data memory:", 2, "a store in memory would end"),
        ("penstock-data backup --user ann", 2, "applies only to a server"),
    ],
)
def test_copy_refuses_in_one_line(call: Call, arguments: str, code: int, message: str) -> None:
    """Whatever is wrong, the line says what to do."""
    Path("x").mkdir()
    result = call("copy", *arguments.split())
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert not Path("backup").exists(), "a copy that cannot begin leaves nothing behind"
