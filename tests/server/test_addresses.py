"""What a server is called."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import pytest

from penstock.errors import AddressUnusable
from penstock.server import _addresses
from penstock.server._addresses import names_of, usable_port

TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.0
           /24 link UNICAST
        |-- 192.0.2.7
           /32 host LOCAL
        |-- 192.0.2.8
           /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
Local:
        |-- 192.0.2.7
           /32 host LOCAL
"""
IF_INET6 = """20010db8000000000000000000000001 02 40 00 80     eth0
fe8000000000000000fc00fffe000001 02 40 20 80     eth0
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three addresses that others reach."""
    tmp_path.joinpath("fib_trie").write_text(TRIE)
    tmp_path.joinpath("if_inet6").write_text(IF_INET6)
    monkeypatch.setattr(_addresses, "_IPV4", tmp_path / "fib_trie")
    monkeypatch.setattr(_addresses, "_IPV6", tmp_path / "if_inet6")
    monkeypatch.setattr(socket, "gethostname", lambda: "hall-7")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_that_listens_everywhere_has_every_address(host: str) -> None:
    """Clients reach it by any of them; no client can connect to 0.0.0.0, nor to an address of one network card."""
    assert names_of(host) == [
        "192.0.2.7", "192.0.2.8", "2001:db8::1", "hall-7", "localhost", "127.0.0.1", "::1",
    ]  # fmt: skip


@pytest.mark.usefixtures("machine")
def test_a_server_that_listens_at_one_address_has_that_one() -> None:
    """The others are not its own."""
    assert names_of("192.0.2.8") == ["192.0.2.8", "hall-7", "localhost", "127.0.0.1", "::1"]


def test_a_name_is_known_with_its_addresses() -> None:
    """A client may have looked it up itself; an unknown name stays as it is."""
    assert {"localhost", "127.0.0.1"} <= set(names_of("localhost"))
    assert names_of("no.such.host.invalid")[0] == "no.such.host.invalid"


def test_addresses_of_this_machine_are_found() -> None:
    """What Linux says here is understood, too."""
    assert all(ipaddress.ip_address(name) for name in _addresses._addresses())
    assert "127.0.0.1" in _addresses._addresses()


def test_without_a_word_of_linux_it_is_what_the_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Better than nothing."""
    monkeypatch.setattr(_addresses, "_IPV4", Path("/no/such/file"))
    monkeypatch.setattr(_addresses, "_IPV6", Path("/no/such/file"))
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert "127.0.0.1" in names_of("0.0.0.0")


def test_a_port_that_another_program_has_at_one_address_of_a_name_is_refused() -> None:
    """The server would listen at the other address only, and clients that try this one first reach that program."""
    first = socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)[0][4][0]
    other = "::1" if first == "127.0.0.1" else "127.0.0.1"
    try:
        taken = socket.create_server((other, 0), family=socket.AF_INET6 if other == "::1" else socket.AF_INET)
    except OSError:
        pytest.skip(f"this machine has no {other}")
    with taken, pytest.raises(AddressUnusable, match="in use"):
        usable_port("localhost", taken.getsockname()[1], setting="port")


def test_any_port_is_one_that_is_free_at_every_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports of connections count as taken, too, and a busy machine has many."""
    ports: list[int] = []

    def taken_twice(_addresses: set[str], port: int) -> str | None:
        ports.append(port)
        return "::1" if len(ports) < 3 else None

    monkeypatch.setattr(_addresses, "_first_in_use", taken_twice)
    assert usable_port("localhost", 0, setting="port") == ports[2]
