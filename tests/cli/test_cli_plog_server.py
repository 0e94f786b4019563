"""``penstock plog-server``: who may come to which port, and what it shows of itself."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, PlogServerRefused
from penstock.plog import open_plogs
from penstock.ports import SystemClock
from penstock.server import Users
from penstock.server._tls import own_certificate
from tests.server.apart import eventually, free_port
from tests.server.metrics import figures_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Call

PASSWORD = "right password"


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """The file of users; the owner may own plogs, the reader may not."""
    users = Users.open(tmp_path / "users.json")
    for name in ("owner", "reader"):
        users.add(name, PASSWORD)
    users.grant("owner", "admin", "*")
    users.grant("reader", "read", "*")
    return users


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """The options that turn TLS on."""
    own_certificate(tmp_path, ["127.0.0.1"], clock=SystemClock())
    return {"--tls-cert": f"{tmp_path}/server-host.crt", "--tls-key": f"{tmp_path}/server-host.key"}


def test_a_port_that_others_reach_needs_users_and_tls(
    call: Call, tmp_path: Path, users: Users, certificate: dict[str, str]
) -> None:
    """Replicas are all events of all streams, and whoever may own plogs may delete them."""
    with_users, folder = {"--users": f"{tmp_path}/users.json"}, tmp_path / "plogs"
    assert users.has("owner")
    cases = [
        ("0.0.0.0", {}, "--users is missing: 0.0.0.0 is open to others"),
        ("0.0.0.0", certificate, "--users is missing"),
        ("0.0.0.0", with_users, "--tls-cert is missing: 0.0.0.0 is open to others, who could read passwords"),
        ("127.0.0.1", {"--tls-cert": certificate["--tls-cert"]}, "--tls-cert and --tls-key are both needed"),
        ("127.0.0.1", {"--tls-key": certificate["--tls-key"]}, "--tls-cert and --tls-key are both needed"),
        ("127.0.0.1", {"--http": "nowhere"}, "invalid --http 'nowhere': use HOST:PORT"),
        ("127.0.0.1", {}, ""),
        ("127.0.0.1", with_users, ""),
    ]
    for host, options, message in cases:
        given = [part for option in options.items() for part in option]
        result = call("plog-server", "--dir", str(folder), "--listen", f"{host}:{free_port()}", *given)
        assert (result.code, message in result.err) == (2 if message else 0, True), (host, options, result.err)
        assert message.startswith("invalid") or folder.exists() == (not message), "one that is refused makes no folder"


def test_a_plain_port_that_others_reach_has_to_be_asked_for(call: Call, tmp_path: Path, users: Users) -> None:
    """As behind a proxy with TLS, or in a network that only servers are in; users are needed all the same."""
    command = ("plog-server", "--dir", f"{tmp_path}/plogs", "--listen", f"0.0.0.0:{free_port()}", "--allow-plain")
    assert users.has("owner")
    assert "--users is missing" in call(*command).err
    assert call(*command, "--users", f"{tmp_path}/users.json").code == 0


@contextmanager
def started(folder: Path, http_port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a plog server in a process of its own, with metrics."""
    command = [sys.executable, "-m", "penstock", "plog-server", "--dir", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--http", f"127.0.0.1:{http_port}", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().split()[1]


@pytest.mark.long
def test_owners_come_with_a_password_or_a_token_over_tls_and_metrics_show_what_they_did(
    tmp_path: Path, users: Users, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes as an operator starts them, and an owner that has everything from its environment."""
    metrics = [free_port() for _ in range(3)]
    with ExitStack() as stack:
        options = [part for option in certificate.items() for part in option] + ["--users", f"{tmp_path}/users.json"]
        servers = [
            stack.enter_context(started(tmp_path / str(place), port, *options)) for place, port in enumerate(metrics)
        ]
        address = f"group:{','.join(address_of(server) for server in servers)}"
        monkeypatch.setenv("PENSTOCK_PLOG_CA", f"{tmp_path}/server.crt")

        def owns(**given: str) -> None:
            with monkeypatch.context() as patch:
                for name, value in given.items():
                    patch.setenv(f"PENSTOCK_PLOG_{name}", value)
                with open_plogs(address) as plogs:
                    assert plogs.append(plogs.create(size=1000), 0, b"x" * 100) == 100

        owns(USER="owner", PASSWORD=PASSWORD)
        owns(TOKEN=users.token("owner", 60.0))
        refused = [
            ({}, "authentication required"),
            ({"USER": "reader", "PASSWORD": PASSWORD}, "user reader may not own plogs"),
            ({"TOKEN": users.token("reader", 60.0)}, "user reader may not own plogs"),
            ({"TOKEN": "no.token"}, "the token is not known here"),
            ({"USER": "owner", "PASSWORD": users.token("owner", 60.0)}, "user or password is wrong"),
        ]
        for given, message in refused:
            with pytest.raises(PlogServerRefused, match=message):
                owns(**given)
        with pytest.raises(BadArgument, match="PENSTOCK_PLOG_TOKEN and PENSTOCK_PLOG_USER contradict each other"):
            owns(USER="owner", TOKEN=users.token("owner", 60.0))
        for port in metrics:
            eventually(lambda: figures_at(port)["penstock_plog_server_connections"] == 0)  # noqa: B023
            found = figures_at(port)
            assert found["penstock_plog_server_partitions"] == 1
            assert found["penstock_plog_server_bytes_total"] == 200
            assert found["penstock_plog_server_changes_total"] >= 4  # a creation and an append of each owner
            assert found["penstock_plog_server_syncs_total"] >= 2
            assert found["process_resident_memory_bytes"] > 0
            assert "penstock_plog_server_scrub_progress" in found
        for server in servers:
            server.terminate()
            assert server.wait(60) == 0
