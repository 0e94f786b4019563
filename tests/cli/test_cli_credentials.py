"""Commands against a server: who somebody is, and how that is said."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cli import command_module, command_names
from penstock.cli._credentials import opens_store
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from tests.cli.project import make_project
from tests.cli.shop import open_shop
from tests.cli.test_cli_commands import example_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Call

STREAM = "plant/readings"


ON_SPARK = ("aggregate", "archive", "windows")  # tests/spark/test_server.py runs Spark as users
ELSEWHERE = {*ON_SPARK, "cluster status"}  # which needs a cluster, and has tests of its own
ON_A_STORE = [name for name in command_names() if name not in ELSEWHERE and opens_store(command_module(name)[1])]


@pytest.fixture
def users(here: Path) -> Users:
    users = Users.open(here / "data" / USERS_FILE)
    users.add("anna", "right")
    users.grant("anna", "admin", "*")
    return users


@pytest.fixture
def server(users: Users, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that knows anna, and has what the examples need; commands find it by the environment."""
    here.joinpath("readings.txt").write_text("21.5\n")
    with Server(Config(store=str(here / "data"), port=0, http_port=0)) as server:
        with penstock.connect(server.address, token=users.token("anna", 60)) as store:
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                writer.write_batch([b"20.1", b"20.4", b"20.9", b"21.2"])
            group = store.create_reader_group("dashboard", [STREAM])
            with group.reader("screen") as reader:
                assert reader.read_next_event(timeout=30) is not None
            group.checkpoint("friday", timeout=30)
            open_shop(store, here)
        monkeypatch.setenv("PENSTOCK_STORE", server.address)
        yield server


@pytest.mark.parametrize("command", ON_A_STORE)
def test_every_command_works_on_a_server_with_users(
    call: Call, server: Server, here: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """With the name as an option and the password in the environment."""
    if command.startswith("repo "):
        with penstock.connect(server.address, user="anna", password="right") as store:
            make_project(here, is_imported=command != "repo import", store=store)
    monkeypatch.setenv("PENSTOCK_PASSWORD", "right")
    arguments = shlex.split(example_of(command))[1:]
    assert call(*arguments).code == 1, "an anonymous client may do nothing"
    result = call(*arguments, "--user", "anna")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("command", ON_A_STORE)
def test_every_command_says_so_in_its_help(call: Call, command: str) -> None:
    """And where the password goes, which is no option."""
    shown = call(*command.split(), "--help").out
    for name in ("--user", "--tls-ca", "PENSTOCK_USER", "PENSTOCK_TLS_CA", "PENSTOCK_PASSWORD", "PENSTOCK_TOKEN"):
        assert name in shown
    assert "--password" not in shown
    assert "--token" not in shown


def test_environment_says_who_one_is(call: Call, server: Server, users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script says it once: as name and password, or as a token."""
    monkeypatch.setenv("PENSTOCK_USER", "anna")
    monkeypatch.setenv("PENSTOCK_PASSWORD", "right")
    assert call("stream", "ls").code == 0
    monkeypatch.delenv("PENSTOCK_USER")
    monkeypatch.delenv("PENSTOCK_PASSWORD")
    monkeypatch.setenv("PENSTOCK_TOKEN", users.token("anna", 60))
    assert call("stream", "ls").code == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PENSTOCK_PASSWORD": "wrong"}, (1, "user or password is wrong")),
        (
            {"PENSTOCK_TOKEN": "x", "PENSTOCK_PASSWORD": "right"},
            (2, "PENSTOCK_TOKEN and a user name contradict each other"),
        ),
        ({}, (2, "cannot prompt for the password without a terminal")),
    ],
)
def test_what_does_not_say_who_one_is_is_one_line(
    call: Call,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    expected: tuple[int, str],
) -> None:
    """And says what to do about it."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = call("stream", "ls", "--user", "anna")
    assert (result.code, len(result.err.splitlines())) == (expected[0], 1)
    assert expected[1] in result.err


def test_password_is_asked_for_on_a_terminal(server: Server, environment: dict[str, str]) -> None:
    """It is not shown there, and what is printed is what was asked for."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["penstock", "stream", "ls", "--store", server.address, "--user", "anna"],
        env=environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        prompt = process.stderr.read(len("Password: "))  # what is typed before is thrown away
        os.write(ours, b"right\n")
        out, err = process.communicate()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    assert out.startswith(b"plant/readings\t")
    assert prompt == b"Password: "
    assert b"right" not in out + err


def test_a_certificate_is_given_as_a_file(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an option, or in the environment."""
    with Server(Config(store=str(here / "data"), port=0, http_port=0, anonymous=True, tls=True)) as server:
        assert call("stream", "create", STREAM, "--store", server.address, "--tls-ca", "data/server.crt").code == 0
        monkeypatch.setenv("PENSTOCK_TLS_CA", "data/server.crt")
        assert call("stream", "ls", "--store", server.address).lines[0].startswith(STREAM)


def test_a_folder_needs_no_name(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says is for servers; a store in a folder asks for no password."""
    monkeypatch.setenv("PENSTOCK_USER", "anna")
    assert call("stream", "create", STREAM, "--store", "./data").code == 0


def test_refusals_are_one_line_and_name_options(
    here: Path, environment: dict[str, str], users: Users, call: Call
) -> None:
    """Of gRPC, which has much to say about such things, not a word."""
    with Server(Config(store=str(here / "data"), port=0, http_port=0, tls=True)) as server:
        for options, message in (
            ("--tls", "its certificate is not signed by an authority that this machine trusts: make --tls-ca a copy"),
            (
                "--tls-ca data/server.crt",
                "authentication required: pass --user, or a token in PENSTOCK_TOKEN",
            ),
            ("--tls-ca data/server.key", "invalid --tls-ca data/server.key: use a certificate in PEM form"),
        ):
            command = ["penstock", "stream", "ls", "--store", server.address, *options.split()]
            found = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
            assert (found.returncode in (1, 2), len(found.stderr.splitlines())) == (True, 1), found.stderr
            assert message in found.stderr
        told = call("stream", "ls", "--store", server.address).err
        assert "the server uses TLS: make --tls-ca a copy of its server.crt, or pass --tls" in told
    assert list(users)


@pytest.mark.parametrize("option", ["--user=anna", "--tls-ca=server.crt", "--tls", "--no-tls", "--plogs=s3://b"])
def test_options_of_a_server_are_refused_for_a_folder(
    call: Call, plant: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Nothing would check who that is; variables may be set for other commands, and are left alone."""
    result = call("stream", "ls", "--store", str(plant / "penstock-data"), option)
    assert result.code == 2
    assert "applies only to a server" in result.err
    monkeypatch.setenv("PENSTOCK_USER", "anna")
    monkeypatch.setenv("PENSTOCK_TLS_CA", "server.crt")
    assert call("stream", "ls", "--store", str(plant / "penstock-data")).code == 0
